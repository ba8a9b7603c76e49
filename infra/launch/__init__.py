"""Launchers: start one worker process on a run folder and wait for it. They know nothing of what a worker does."""

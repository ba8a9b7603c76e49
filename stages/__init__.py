"""What each step does: one folder a stage over shared core, tasks, rewards, rollout and train."""

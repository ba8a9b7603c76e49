"""Settings that hold for every test."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every machine and in every run, however slow the machine; nothing is left on disk.
settings.register_profile("ninefold", derandomize=True, deadline=None, database=None)
settings.load_profile("ninefold")

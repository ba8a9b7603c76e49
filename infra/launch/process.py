"""The port of every launcher, and the rule that a child never outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

POLL_S = 0.25
"""How often a waiting flow looks at the logs of a running stage."""

_PR_SET_PDEATHSIG = 1


class Process(Protocol):
    """A worker that was started."""

    def poll(self, timeout_s: float) -> int | None:
        """Wait at most ``timeout_s`` seconds. Exit code, minus a signal's number, or None while it runs."""
        ...

    def terminate(self) -> None:
        """Ask it to checkpoint and end (SIGTERM to its process group)."""
        ...

    def kill(self) -> None:
        """End it at once (SIGKILL to its process group)."""
        ...


class Launcher(Protocol):
    """Starts workers."""

    def launch(self, run_dir: Path, env: Mapping[str, str]) -> Process:
        """Start one worker on ``run_dir`` with ``env`` over the environment; its output goes to the folder's log."""
        ...

    def close(self) -> None:
        """End whatever still runs."""
        ...


def wait(process: Process, on_poll: Callable[[], None]) -> int:
    """Wait for the end; ``on_poll`` is called every POLL_S seconds meanwhile.

    Returns:
        the exit code, or minus the number of the signal that ended the process.
    """
    while (code := process.poll(POLL_S)) is None:
        on_poll()
    return code


def signal_name(code: int) -> str:
    """``SIGKILL`` for -9."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGTERM to this process when the thread that forked it ends (Linux; elsewhere a no-op).

    SIGTERM and not SIGKILL: the stage checkpoints, and the processes below it hear of it too.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent_pid:  # the parent ended before the call above
        os.kill(os.getpid(), signal.SIGTERM)


def signal_group(pid: int, number: int) -> None:
    """Send ``number`` to the process group of ``pid``; a group that is gone is no error."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return

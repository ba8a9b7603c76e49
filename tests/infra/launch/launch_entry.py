"""Entries for the fork server: each does what the run folder's ``what`` file says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(run_dir: str) -> int:
    folder = Path(run_dir)
    what = (folder / "what").read_text()
    rank = os.environ.get("RANK", "0")
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    if what == "print":
        print("said", os.environ["COLOUR"], os.getpgid(0) == os.getpid(), sys.stdin.read() == "")
        return 7
    if what == "raise":
        raise ValueError("on purpose")
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "leave a child":
        child = subprocess.Popen(["sleep", "600"])
        (folder / "grandchild").write_text(str(child.pid))
        return 0
    if what == "rank":
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        (folder / f"env-{rank}").write_text(" ".join(os.environ[name] for name in names))
        return 0
    if what == "rank 1 fails":
        return 5 if rank == "1" else _forever(folder, rank)
    return _forever(folder, rank)


def _forever(folder: Path, rank: str) -> int:
    """Until SIGTERM, which ends it with 143 as a stage would."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    (folder / f"ready-{rank}").touch()
    while not told:
        time.sleep(0.01)
    return 143

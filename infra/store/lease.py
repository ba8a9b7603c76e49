"""One lease a key: two runs never make the same thing twice.

The lock is the kernel's, so it is gone the moment its holder dies, however it dies. The file beside it only says who
holds it, for people; it decides nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from infra.store.local import LEASES, Store
from stages.core.errors import Interrupted, Skipped
from stages.core.files import read_json, write_json

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease."""

    pid: int
    host: str
    run: str
    since: float
    """Seconds since the epoch."""

    def __str__(self) -> str:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"run {self.run} (pid {self.pid} on {self.host}, since {started})"


class Lease:
    """The right to make ``name``: an artifact key, or any other word, e.g. ``run.quickstart``."""

    def __init__(self, store: Store, name: str, run: str) -> None:
        folder = store.root / LEASES
        self.name = name
        self._run = run
        self._info: Path = folder / f"{name}.json"
        # Not thread-local: the flow acquires in one thread and may release in another.
        self._lock = FileLock(folder / f"{name}.lock", thread_local=False)

    def acquire(
        self,
        *,
        wait: bool = True,
        on_wait: Callable[[Holder | None], None] = lambda holder: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take the lease.

        Args:
            wait: wait for the holder to end; else give up at once.
            on_wait: called once, with the holder where it is known, when waiting begins.
            cancelled: looked at while waiting.

        Raises:
            Skipped: held by another and ``wait`` is False.
            Interrupted: ``cancelled`` said so while waiting.
        """
        self._info.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            holder = self.holder()
            if not wait:
                raise Skipped(self.name, got=f"held by {holder or 'another run'}", fix="wait for it to end") from None
            on_wait(holder)
            self._wait(cancelled)
        write_json(self._info, asdict(Holder(os.getpid(), socket.gethostname(), self._run, time.time())))

    def _wait(self, cancelled: Callable[[], bool]) -> None:
        try:
            self._lock.acquire(timeout=-1, poll_interval=POLL_SECONDS, cancel_check=cancelled)
        except Timeout:
            raise Interrupted(f"waiting for {self.name} was cut short") from None

    def release(self) -> None:
        """Give the lease back; harmless where it is not held."""
        if self._lock.is_locked:
            self._info.unlink(missing_ok=True)
            self._lock.release()

    def holder(self) -> Holder | None:
        """Who wrote the holder file last, or None; it may be dead, which only ``acquire`` can tell."""
        try:
            return Holder(**read_json(self._info))
        except (OSError, ValueError, TypeError):
            return None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

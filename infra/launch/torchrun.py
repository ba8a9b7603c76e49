"""A stage in several processes on this machine: one worker a rank, meeting on the loopback interface."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.launch.process import Launcher, Process

GRACE_S = 10.0
"""When one rank has failed the others wait for it for ever in their next collective: they get this long."""


class RankGroup(Process):
    """All ranks as one process. It ends when all have; a rank that fails takes the others with it."""

    def __init__(self, ranks: Sequence[Process]) -> None:
        self._ranks = ranks
        self._codes: dict[int, int] = {}
        self._first_failure: int | None = None
        self._deadline: float | None = None

    def poll(self, timeout_s: float) -> int | None:
        """The exit code of the rank that failed first, or 0 when all ended well."""
        for rank, process in enumerate(self._ranks):
            if rank not in self._codes and (code := process.poll(timeout_s / len(self._ranks))) is not None:
                self._codes[rank] = code
                if code != 0 and self._first_failure is None:
                    self._first_failure = code
                    self._deadline = time.monotonic() + GRACE_S
                    self.terminate()
        if len(self._codes) == len(self._ranks):
            return self._first_failure or 0
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._deadline = None
            self.kill()
        return None

    def terminate(self) -> None:
        for rank, process in enumerate(self._ranks):
            if rank not in self._codes:
                process.terminate()

    def kill(self) -> None:
        for rank, process in enumerate(self._ranks):
            if rank not in self._codes:
                process.kill()


class RankLauncher(Launcher):
    """Starts ``processes`` workers through ``inner``, with the environment that torch.distributed reads."""

    def __init__(self, inner: Launcher, processes: int) -> None:
        self._inner = inner
        self._processes = processes

    def launch(self, run_dir: Path, env: Mapping[str, str]) -> RankGroup:
        shared = {
            **env,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "WORLD_SIZE": str(self._processes),
            "LOCAL_WORLD_SIZE": str(self._processes),
        }
        ranks = [
            self._inner.launch(run_dir, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(self._processes)
        ]
        return RankGroup(ranks)

    def close(self) -> None:
        self._inner.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Workers on this machine, forked by a preloaded server (see ``infra.launch.forkserver``)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.launch.environment import FORK_SERVER, WORKER
from infra.launch.process import Launcher, Process
from stages.core.errors import StageFailed


class LocalProcess(Process):
    """A child of the fork server."""

    def __init__(self, launcher: LocalLauncher, number: int) -> None:
        self._launcher = launcher
        self._number = number
        self._ended = threading.Event()
        self.pid: int | None = None
        """Known once the server has forked it."""
        self.code: int | None = None

    def poll(self, timeout_s: float) -> int | None:
        """Raises:
        StageFailed: the fork server is gone, so that nobody can tell how the stage ended.
        """
        if self._ended.wait(timeout_s) and self.code is None:
            raise self._launcher.gone()
        return self.code

    def terminate(self) -> None:
        self._launcher.send({"id": self._number, "signal": int(signal.SIGTERM)})

    def kill(self) -> None:
        self._launcher.send({"id": self._number, "signal": int(signal.SIGKILL)})

    def note(self, message: Mapping[str, Any]) -> None:
        """What the server says of this child."""
        self.pid = message.get("pid", self.pid)
        if "status" in message:
            self.code = int(message["status"])
            self._ended.set()

    def lost(self) -> None:
        self._ended.set()


class LocalLauncher(Launcher):
    """Starts the server at once, in the background; the first ``launch`` may come before it is ready.

    Args:
        entry: ``module:function``, called with the run folder in each child.
        preload: modules that the server imports once.
        log: file for the server's own output.
        env: over the environment, for the server and all children.
    """

    def __init__(self, entry: str, preload: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._processes: dict[int, LocalProcess] = {}
        self._ended = False
        self._ready = threading.Event()
        self._control, theirs = socket.socketpair()
        command = [sys.executable, "-m", "infra.launch.forkserver", "--control", str(theirs.fileno())]
        command += ["--entry", entry, "--preload", *preload]
        with log.open("ab") as output:
            # Its own session: Ctrl-C in the terminal is for the flow alone, which then ends the stages in order.
            self._server = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**WORKER, **os.environ, **FORK_SERVER, **(env or {})},
                start_new_session=True,
            )
        theirs.close()
        self._reader = threading.Thread(target=self._read, name="forkserver-reader", daemon=True)
        self._reader.start()

    def launch(self, run_dir: Path, env: Mapping[str, str]) -> LocalProcess:
        """Raises:
        StageFailed: the fork server has ended.
        """
        with self._lock:
            number = len(self._processes) + 1
            process = self._processes[number] = LocalProcess(self, number)
            ended = self._ended
        if ended:
            raise self.gone()
        self.send({"id": number, "run_dir": str(run_dir), "env": dict(env)})
        return process

    def send(self, message: Mapping[str, Any]) -> None:
        try:
            with self._lock:
                self._control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # the server is gone: the reader has told every process
            return

    def wait_ready(self) -> None:
        """Wait until the server has imported everything, or is gone."""
        self._ready.wait()

    def adopt(self, pid: int) -> None:
        """Have the server end this process too, should the flow die: a helper that would otherwise live on."""
        self.send({"adopt": pid})

    def gone(self) -> StageFailed:
        """The error of a stage whose server ended."""
        return StageFailed(
            "the fork server",
            got=f"it ended with exit code {self._server.wait()}",
            expected="it to live as long as the run",
            fix=f"see {self._log}; run the same command to go on from the last checkpoints",
        )

    def close(self) -> None:
        """End the server and, through it, whatever still runs."""
        self.send({"close": True})
        with contextlib.suppress(OSError):  # the server is gone already
            self._control.shutdown(socket.SHUT_WR)
        self._server.wait()
        self._reader.join()
        self._control.close()

    def _read(self) -> None:
        with self._control.makefile("r", encoding="utf-8") as lines, contextlib.suppress(ConnectionResetError):
            for line in lines:
                message = json.loads(line)
                if "id" in message:
                    self._processes[message["id"]].note(message)
                else:
                    self._ready.set()
        self._ready.set()
        with self._lock:
            self._ended = True
            for process in self._processes.values():
                process.lost()

"""A process that imports the heavy libraries once and forks one child per stage: ``python -m infra.launch.forkserver``.

Spoken over a socket, one JSON object a line. From the flow::

    {"id": 1, "run_dir": "...", "env": {...}}      start a child: entry(run_dir)
    {"id": 1, "signal": 15}                        signal its process group
    {"adopt": 4712}                                end this process of the flow's too, should the flow die
    {"close": true}                                the flow ends in order: the adopted are its own affair

To the flow::

    {"ready": true}                                everything is imported
    {"id": 1, "pid": 4711}                         forked
    {"id": 1, "status": 0}                         exit code, or minus a signal's number

End of file on the socket means that the flow is gone, however it ended: every child's group gets SIGTERM, a grace to
checkpoint, then SIGKILL. Should this process die itself, the kernel sends SIGTERM to the children.

The server never runs a tensor operation: a thread pool that it started would be missing in every child.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.launch.process import die_with_parent, signal_group
from stages.core.context import LOG

GRACE_S = 60.0
"""A stage that was told to stop gets this long for its checkpoint."""


class ForkServer:
    """The loop: requests in, children out, statuses back."""

    def __init__(self, control: socket.socket, entry: Callable[[str], int]) -> None:
        self._control = control
        self._entry = entry
        self._children: dict[int, int] = {}
        """Process id -> request id."""
        self._adopted: list[int] = []
        self._received = b""
        self._wake_reader, self._wake_writer = os.pipe()

    def serve(self) -> None:
        """Until the flow closes its end, or SIGTERM."""
        os.set_blocking(self._wake_writer, False)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._control.shutdown(socket.SHUT_RD))
        self._send({"ready": True})
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wake_reader in ready:
                    os.read(self._wake_reader, 4096)
                    self._reap()
                if self._control in ready and not self._receive():
                    break
        self._end_children()

    def _receive(self) -> bool:
        """Handle what arrived; False at end of file."""
        try:
            data = self._control.recv(1 << 16)
        except ConnectionResetError:
            return False
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))
        return bool(data)

    def _handle(self, request: dict[str, Any]) -> None:
        if "run_dir" in request:
            self._fork(request)
        elif "signal" in request:
            for pid in [pid for pid, number in self._children.items() if number == request["id"]]:
                signal_group(pid, int(request["signal"]))
        elif "adopt" in request:
            self._adopted.append(int(request["adopt"]))
        else:
            self._adopted.clear()

    def _fork(self, request: dict[str, Any]) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os._exit(self._child(request, server))
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # here too: a signal may come before the child has done it
        self._children[pid] = request["id"]
        self._send({"id": request["id"], "pid": pid})

    def _child(self, request: dict[str, Any], server: int) -> int:
        """Run the entry in the fork. Returns its exit code."""
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            die_with_parent(server)
            self._control.close()
            os.close(self._wake_reader)
            os.close(self._wake_writer)
            os.environ.update(request["env"])
            _redirect(Path(request["run_dir"]) / _log_name(request["env"]))
            return self._entry(request["run_dir"])
        except BaseException:
            traceback.print_exc()
            return 5
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _reap(self) -> None:
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                signal_group(pid, signal.SIGKILL)  # nothing that a stage started outlives it
                self._send({"id": self._children.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # the flow is gone: the next read says so
            return

    def _end_children(self) -> None:
        for pid in self._adopted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._children:
            signal_group(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while self._children and time.monotonic() < deadline:
            time.sleep(0.05)
            self._reap()
        for pid in self._children:
            signal_group(pid, signal.SIGKILL)


def _log_name(env: dict[str, str]) -> str:
    """Each rank of a distributed stage has its own log; rank 0 the usual one."""
    rank = env.get("RANK", "0")
    return LOG if rank == "0" else f"worker-{rank}.log"


def _redirect(path: Path) -> None:
    """stdin from nowhere, stdout and stderr to the end of ``path``."""
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    os.close(nowhere)


def load(entry: str) -> Callable[[str], int]:
    """The function that ``module:name`` names."""
    module, _, name = entry.partition(":")
    function: Callable[[str], int] = getattr(importlib.import_module(module), name)
    return function


def preload(modules: list[str]) -> None:
    """Import ahead of need. What cannot be imported is left to fail, with its own message, where it is used."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            traceback.print_exc()
    # Objects that live for ever need no collector: without it their pages stay shared with the children.
    gc.collect()
    gc.freeze()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the socket to the flow")
    parser.add_argument("--entry", required=True, help="module:function called with the run folder in each child")
    parser.add_argument("--preload", nargs="*", default=[], help="modules to import once")
    arguments = parser.parse_args()
    preload(arguments.preload)
    ForkServer(socket.socket(fileno=arguments.control), load(arguments.entry)).serve()


if __name__ == "__main__":
    main()

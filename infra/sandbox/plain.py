"""A sandbox of plain limits: a child interpreter that forks once per program.

It bounds what a program uses (time, memory, processor, files, processes, output) and cleans up after it. It does not
hide the file system or the network; and only where this process runs as root does a program run as another user, and so
cannot signal our processes.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.core.ports import Execution

SERVER = Path(__file__).with_name("server.py")
START_S = 60.0
"""A new interpreter is given this long to answer, on a busy machine too."""
GRACE_S = 30.0
"""The server is given this long beyond a program's own time before it is taken for broken."""

ERROR_CHARS = 60
"""Most of a program's error that is kept."""


class _Broken(Exception):
    """The server does not answer as it should."""


class PlainSandbox:
    """Implements the Sandbox port. Not for several threads at once.

    Args:
        timeout_s: wall clock of one ``execute``, all calls together.
        memory_mb: address space of the program.
        interpreter: Python that runs server and programs.
    """

    def __init__(self, timeout_s: float, memory_mb: int, interpreter: str = sys.executable) -> None:
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._interpreter = interpreter
        self._server: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None

    def execute(self, program: str, entry: str, calls: Sequence[Any]) -> Execution:
        """See the Sandbox port. A broken server is an ``infra_error``, and the next call starts another one."""
        request = {"program": program, "entry": entry, "calls": list(calls)}
        try:
            if self._server is None:
                self._start()
            reply = self._exchange(request, self._timeout_s + GRACE_S)
        except (OSError, _Broken) as error:
            self.close()
            return Execution((), "", infra_error=f"{self._interpreter}: {error or type(error).__name__}")
        return _execution(reply["results"], reply["error"], len(request["calls"]))

    def close(self) -> None:
        if self._server is not None:
            for pipe in (self._server.stdin, self._server.stdout):
                if pipe is not None:
                    pipe.close()
            self._server.kill()
            self._server.wait()
            self._server = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ninefold-sandbox-")
        Path(self._folder).chmod(0o555)
        self._server = subprocess.Popen(
            [self._interpreter, "-I", "-S", str(SERVER), str(self._timeout_s), str(self._memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            bufsize=0,
            env={},
            start_new_session=True,
        )
        why_not = self._answer(START_S)["ready"]
        if why_not:
            raise _Broken(why_not)

    def _exchange(self, request: dict[str, Any], wait_s: float) -> dict[str, Any]:
        assert self._server is not None
        assert self._server.stdin is not None
        line = memoryview(json.dumps(request).encode() + b"\n")
        while line:
            line = line[os.write(self._server.stdin.fileno(), line) :]
        return self._answer(wait_s)

    def _answer(self, wait_s: float) -> dict[str, Any]:
        """The server's next line. It holds at most what the server reads of a program, so its size is bounded."""
        assert self._server is not None
        assert self._server.stdout is not None
        deadline, line = time.monotonic() + wait_s, bytearray()
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._server.stdout], [], [], left)[0]:
                raise _Broken(f"no answer within {wait_s:.0f} s")
            chunk = os.read(self._server.stdout.fileno(), 1 << 16)
            if not chunk:
                raise _Broken("ended without an answer")
            line += chunk
        try:
            return dict(json.loads(line))
        except ValueError:
            raise _Broken(f"not an answer: {bytes(line[:80])!r}") from None


def _execution(lines: Sequence[str], error: str, calls: int) -> Execution:
    """Read the program's result lines, which it may have forged: they are values or they are its fault."""
    outputs: list[Any] = []
    for line in lines[: calls + 1]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or "output" not in record:
            named = record.get("error") if isinstance(record, dict) else None
            return Execution(tuple(outputs), str(named or "unreadable result")[:ERROR_CHARS])
        outputs.append(record["output"])
    if len(outputs) > calls:
        return Execution((), "more results than calls")
    return Execution(tuple(outputs), "" if len(outputs) == calls else error)

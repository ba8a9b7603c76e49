"""Runs inside the sandbox's interpreter (``python -I -S server.py``): forks once per program. Standard library only.

Requests and replies are JSON lines on standard input and output. The candidate runs in a fork that holds neither: it
has one pipe for results, one for whatever it prints, and the limits set in ``_confine``. The server runs none of the
candidate's code, so a reply can be trusted as far as what happened, and each result line in it is the candidate's word.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

FLOOD_BYTES = 1 << 20
"""Most bytes of results, and of prints, that are read before the program is killed."""
OPEN_FILES = 64
FORKS = """
import os
def probe(_):
    try:
        os.fork()
    except OSError:
        return True
    return False
"""
NOBODY = 65534
_PR_SET_KEEPCAPS = 8
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2


def main() -> None:
    timeout_s, memory_mb = float(sys.argv[1]), int(sys.argv[2])
    _reply({"ready": _probe(timeout_s, memory_mb)})
    for line in sys.stdin.buffer:
        _reply(run(json.loads(line), timeout_s, memory_mb))
    # The input has ended, so whoever started this server is gone, perhaps killed: the empty folder is left to us.
    with contextlib.suppress(OSError):
        os.rmdir(os.getcwd())


def _reply(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _probe(timeout_s: float, memory_mb: int) -> str:
    """Empty, or why this machine cannot confine a program: proven by a program that tries to fork."""
    outcome = run({"program": FORKS, "entry": "probe", "calls": [None]}, max(timeout_s, 5.0), memory_mb)
    return "" if outcome["results"] == ['{"output": true}'] else f"a program may start processes here ({outcome})"


def run(request: dict[str, Any], timeout_s: float, memory_mb: int) -> dict[str, Any]:
    """``{"results": [line], "error": word}``: the lines as the program wrote them, and what ended it if not its end."""
    results_in, results_out = os.pipe()
    prints_in, prints_out = os.pipe()
    child = os.fork()
    if child == 0:
        _candidate(request, timeout_s, memory_mb, results_out, prints_out)
    os.close(results_out)
    os.close(prints_out)
    try:
        data, error = _read(results_in, prints_in, time.monotonic() + timeout_s)
    finally:
        status = _end(child)
        os.close(results_in)
        os.close(prints_in)
    whole = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    return {"results": whole.split("\n")[:-1], "error": error or _death(status)}


def _read(results: int, prints: int, deadline: float) -> tuple[bytes, str]:
    """What the program wrote as results until both pipes end, the time is up or one of them floods."""
    data, amounts = bytearray(), {results: 0, prints: 0}
    while amounts:
        left = deadline - time.monotonic()
        ready = select.select(list(amounts), [], [], left)[0] if left > 0 else []
        if not ready:
            return bytes(data), "timeout"
        for pipe in ready:
            chunk = os.read(pipe, 1 << 16)
            amounts[pipe] += len(chunk)
            if amounts[pipe] > FLOOD_BYTES:
                return bytes(data), "output_limit"
            if pipe == results:
                data += chunk
            if not chunk:
                del amounts[pipe]
    return bytes(data), ""


def _end(child: int) -> int:
    """Kill and reap the program; its wait status. It could start no others: ``_probe`` has shown it."""
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _death(status: int) -> str:
    """Why a program ended that wrote no error of its own; only looked at where results are missing."""
    return f"died by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "left early"


def _candidate(request: dict[str, Any], timeout_s: float, memory_mb: int, results: int, prints: int) -> NoReturn:
    """The forked program: confine, define, call, and write one line per result. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(prints, 1)
        os.dup2(prints, 2)
        os.dup2(results, 3)
        os.closerange(4, OPEN_FILES * 4)
        _confine(timeout_s, memory_mb)
        _call(request)
    except BaseException as error:
        os.write(3, (json.dumps({"error": _name(error)}) + "\n").encode())
    finally:
        os._exit(0)


def _call(request: dict[str, Any]) -> None:
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(request["program"], "candidate", "exec"), namespace)
    entry = namespace.get(request["entry"])
    if not callable(entry):
        raise LookupError("missing entry")
    for argument in request["calls"]:
        line = (json.dumps({"output": entry(argument)}, allow_nan=False) + "\n").encode()
        while line:
            line = line[os.write(3, line) :]


def _name(error: BaseException) -> str:
    """The candidate's fault in a word."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.EFBIG)):
        return "resource_limit"
    if isinstance(error, LookupError) and error.args == ("missing entry",):
        return "missing entry"
    return type(error).__name__


def _confine(timeout_s: float, memory_mb: int) -> None:
    """No new processes or threads, no file may grow, no more memory and processor time than given.

    The kernel exempts root from the process limit, so root becomes nobody first, keeping only the right to read: the
    interpreter's library may lie where nobody has no access.
    """
    limits = {
        resource.RLIMIT_CPU: int(timeout_s) + 1,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    if sys.platform == "linux":  # Elsewhere the kernel does not know a limit on the address space.
        limits[resource.RLIMIT_AS] = memory_mb << 20
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() == 0:
        prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        _keep_only(_CAP_DAC_READ_SEARCH)


def _keep_only(capability: int) -> None:
    """Give up every capability but one, for good."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Two blocks of 32 capabilities: effective, permitted, inheritable.
    data = (ctypes.c_uint32 * 6)(capability, capability, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    main()

"""Contract of the Sandbox port against programs that misbehave. Oracle: the verdict each must get, and that
nothing of it is left on the machine afterwards."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.sandbox.plain import PlainSandbox
from stages.core.errors import DataError
from stages.core.ports import Execution
from stages.core.records import Problem
from stages.tasks import verifiers
from stages.tasks.config import CodeVerifier

MARK = "4242.25"
"""Argument of ``sleep`` that these tests recognise as theirs."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[PlainSandbox]:
    made = PlainSandbox(timeout_s=20.0, memory_mb=256)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty() -> Iterator[PlainSandbox]:
    """For programs that never end."""
    made = PlainSandbox(timeout_s=0.5, memory_mb=256)
    yield made
    made.close()


def solve(body: str) -> str:
    return "def solve(x):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def execute(sandbox: PlainSandbox, program: str, calls: tuple[Any, ...] = (1, 2)) -> Execution:
    outcome = sandbox.execute(program, "solve", calls)
    assert outcome.infra_error == ""
    return outcome


def test_values_come_back_in_order(sandbox: PlainSandbox) -> None:
    program = "import math\n" + solve("return [x, math.sqrt(x), {'é': None}]")
    assert execute(sandbox, program, (4, 9)) == Execution(([4, 2.0, {"é": None}], [9, 3.0, {"é": None}]), "")


def test_programs_share_nothing(sandbox: PlainSandbox) -> None:
    execute(sandbox, "import math\nmath.pi = 3\n" + solve("return 1"))
    assert execute(sandbox, "import math\n" + solve("return math.pi > 3.1"), (1,)).outputs == (True,)


def test_modules_that_the_server_has_not_loaded(sandbox: PlainSandbox) -> None:
    program = "import fractions, decimal, statistics\n" + solve("return str(fractions.Fraction(x, 6))")
    assert execute(sandbox, program, (3,)).outputs == ("1/2",)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (solve("import sys\nsys.exit(0)"), "SystemExit"),
        ("import os\nos._exit(0)", "left early"),
        (solve("import os\nos._exit(0)"), "left early"),
        ("class Same:\n    def __eq__(self, other): return True\n" + solve("return Same()"), "TypeError"),
        (solve("return float('nan')"), "ValueError"),
        (solve("return 1 / 0"), "ZeroDivisionError"),
        (solve("return solve(x)"), "RecursionError"),
        ("def solve(:", "SyntaxError"),
        ("x = 1", "missing entry"),
        (solve("return bytearray(1 << 30)"), "resource_limit"),
        (solve("import os\nos.fork()"), "resource_limit"),
        (solve("import os\nos.kill(os.getpid(), 11)"), "died by signal 11"),
        (solve("import os\nos.kill(os.getpid(), 35)"), "died by signal 35"),
        (solve("import os\nos.write(3, b'x\\n')\nreturn 1"), "unreadable result"),
        (solve("import os\nos.write(3, b'{\"output\": 1}\\n' * 9)\nreturn 1"), "more results than calls"),
        (solve("return 'x' * (2 << 20)"), "output_limit"),
        ("while True: print('x' * 1000)", "output_limit"),
        ("import sys\nwhile True: sys.stderr.write('\\udcff' * 1000)", "output_limit"),
    ],
)
def test_the_candidates_faults(sandbox: PlainSandbox, program: str, error: str) -> None:
    assert execute(sandbox, program) == Execution((), error)


def test_results_before_a_fault_are_kept(sandbox: PlainSandbox) -> None:
    assert execute(sandbox, solve("return 6 // (x - 2)"), (1, 2, 3)) == Execution((-6,), "ZeroDivisionError")


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
        "import time\n" + solve("time.sleep(3600)"),
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    ],
    ids=["loop", "catches all", "ignores SIGTERM", "sleeps", "fork bomb"],
)
def test_timeout_then_the_next_program_runs(hasty: PlainSandbox, program: str) -> None:
    assert execute(hasty, program) == Execution((), "timeout")
    assert hasty._server is not None
    assert psutil.Process(hasty._server.pid).children(recursive=True) == []


def test_no_process_is_left(sandbox: PlainSandbox) -> None:
    """Programs that start others, detached too: refused, and nothing of them remains, not even a zombie."""
    for start_new_session in (False, True):
        body = f"import subprocess\nsubprocess.Popen(['sleep', '{MARK}'], start_new_session={start_new_session})"
        assert execute(sandbox, solve(body)).error == "resource_limit"
    assert sandbox._server is not None
    assert psutil.Process(sandbox._server.pid).children(recursive=True) == []
    assert not [process for process in psutil.process_iter(["cmdline"]) if MARK in (process.info["cmdline"] or [])]


def test_threads_are_refused(sandbox: PlainSandbox) -> None:
    program = "import threading\n" + solve("threading.Thread(target=print).start()")
    assert execute(sandbox, program).error == "RuntimeError"


def test_no_file_grows_and_the_environment_is_empty(sandbox: PlainSandbox, tmp_path: Path) -> None:
    target = tmp_path / "written"
    body = f"with open({str(target)!r}, 'w') as file: file.write('x')"
    assert execute(sandbox, solve(body)).error in {"resource_limit", "PermissionError"}
    assert not target.exists() or target.stat().st_size == 0
    listed = execute(sandbox, "import os\n" + solve("return [sorted(os.environ), os.listdir()]"), (1,)).outputs[0]
    assert set(listed[0]) <= {"LC_CTYPE"}  # which the interpreter sets itself
    assert listed[1] == []


def test_a_candidate_cannot_kill_the_server_as_root(sandbox: PlainSandbox) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give the program a user of its own")
    assert execute(sandbox, solve("import os\nos.kill(os.getppid(), 9)")).error == "PermissionError"


def test_a_killed_server_is_an_infra_error_and_is_replaced() -> None:
    sandbox = PlainSandbox(timeout_s=20.0, memory_mb=256)
    assert execute(sandbox, solve("return x"), (1,)).outputs == (1,)
    assert sandbox._server is not None
    sandbox._server.kill()
    sandbox._server.wait()
    outcome = sandbox.execute(solve("return x"), "solve", [1])
    assert (outcome.outputs, outcome.error) == ((), "")
    assert outcome.infra_error
    assert execute(sandbox, solve("return x"), (1,)).outputs == (1,)
    sandbox.close()


def test_close_leaves_nothing() -> None:
    sandbox = PlainSandbox(timeout_s=20.0, memory_mb=256)
    execute(sandbox, solve("return x"))
    assert sandbox._server is not None
    assert sandbox._folder is not None
    server, folder = psutil.Process(sandbox._server.pid), Path(sandbox._folder)
    assert folder.exists()
    sandbox.close()
    assert not server.is_running()
    assert not folder.exists()
    sandbox.close()


def test_an_owner_that_dies_leaves_nothing() -> None:
    sandbox = PlainSandbox(timeout_s=20.0, memory_mb=256)
    execute(sandbox, solve("return x"))
    assert sandbox._server is not None
    assert sandbox._server.stdin is not None
    assert sandbox._folder is not None
    sandbox._server.stdin.close()  # what the kernel does for a killed owner
    assert sandbox._server.wait() == 0
    assert not Path(sandbox._folder).exists()
    sandbox.close()


def test_works_off_the_main_thread() -> None:
    outcomes: list[Execution] = []

    def work() -> None:
        sandbox = PlainSandbox(timeout_s=0.5, memory_mb=256)
        outcomes.append(sandbox.execute(solve("return x"), "solve", [1]))
        outcomes.append(sandbox.execute("while True: pass", "solve", [1]))
        sandbox.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcomes[1] == Execution((), "timeout")


@pytest.mark.parametrize("interpreter", ["/bin/false", "/bin/cat", "/nowhere/python"])
def test_a_broken_interpreter_is_an_infra_error(interpreter: str) -> None:
    outcome = PlainSandbox(1.0, 256, interpreter).execute(solve("return x"), "solve", [1])
    assert (outcome.outputs, outcome.error) == ((), "")
    assert interpreter in outcome.infra_error


def test_the_verifiers_self_test_stops_a_broken_interpreter() -> None:
    problem = Problem("p", "code", "?", "return 1", extra={"tests": [[0, 1]]})
    config = CodeVerifier(type="code", template="def solve(x):\n    {answer}")
    sound = verifiers.build(config, PlainSandbox)
    verifiers.self_test(sound, [problem], "code")
    sound.close()
    broken = verifiers.build(config, lambda **limits: PlainSandbox(**limits, interpreter="/bin/false"))
    with pytest.raises(DataError, match=r"code: verifier self-test failed: got reward None"):
        verifiers.self_test(broken, [problem], "code")

"""Oracles: hand-worked verdicts. The sandbox here runs programs in this process: small, real, and trusting."""

from collections.abc import Sequence
from typing import Any

import pytest

from stages.core.errors import DataError
from stages.core.ports import Execution
from stages.core.records import Problem
from stages.tasks import verifiers
from stages.tasks.config import CodeVerifier, ExactVerifier

TESTS = [[0, 1], [2, 7.0], [3, 10]]
PROBLEM = Problem("p", "code", "?", "return 3 * x + 1", extra={"tests": TESTS})
CONFIG = CodeVerifier(type="code", template="def solve(x):\n    {answer}", timeout_s=3.0, memory_mb=128)


class TrustingSandbox:
    def __init__(self, timeout_s: float, memory_mb: int) -> None:
        self.limits = (timeout_s, memory_mb)
        self.seen: list[tuple[str, list[Any]]] = []
        self.broken = False
        self.closed = False

    def __call__(self, timeout_s: float, memory_mb: int) -> "TrustingSandbox":
        self.limits = (timeout_s, memory_mb)
        return self

    def execute(self, program: str, entry: str, calls: Sequence[Any]) -> Execution:
        self.seen.append((program, list(calls)))
        if self.broken:
            return Execution((), "", infra_error="no machine")
        outputs: list[Any] = []
        try:
            namespace: dict[str, Any] = {}
            exec(program, namespace)
            outputs.extend(namespace[entry](call) for call in calls)
        except Exception as error:
            return Execution(tuple(outputs), type(error).__name__)
        return Execution(tuple(outputs), "")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sandbox() -> TrustingSandbox:
    return TrustingSandbox(0, 0)


@pytest.fixture
def code(sandbox: TrustingSandbox) -> verifiers.Verifier:
    return verifiers.build(CONFIG, sandbox)


def reward(verifier: verifiers.Verifier, answer: str, problem: Problem = PROBLEM) -> float | None:
    return verifier.verify_many([(problem, answer)])[0].reward


def with_tests(tests: Any) -> Problem:
    return Problem("p", "code", "?", "return 1", extra={"tests": tests})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("8", 1.0), (" 8\n", 1.0), ("9", 0.0), ("", 0.0), ("8 8", 0.0), ("08", 0.0), ("8.0", 0.0)],
)
def test_exact(answer: str, expected: float, sandbox: TrustingSandbox) -> None:
    exact = verifiers.build(ExactVerifier(), sandbox)
    assert reward(exact, answer, Problem("p", "d", "?", "8 ")) == expected
    assert sandbox.seen == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("return 3 * x + 1", 1.0),  # 7 equals 7.0
        ("return 3 * x", 0.0),
        ("return", 0.0),
        ("return 3 *", 0.0),
        ("raise ValueError", 0.0),
        ("return [x for x in {3}]", 0.0),  # braces are code
        ("  ", 0.0),
    ],
)
def test_code(code: verifiers.Verifier, answer: str, expected: float) -> None:
    assert reward(code, answer) == expected


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        ("True", 1, 0.0),
        ("1", True, 0.0),
        ("True", True, 1.0),
        ("[1, True]", [1, 1], 0.0),
        ("[1, 2.0]", [1.0, 2], 1.0),
        ("[1]", [1, 2], 0.0),
        ("{'a': 1}", {"a": 1}, 1.0),
        ("{'a': True}", {"a": 1}, 0.0),
        ("'1'", 1, 0.0),
        ("None", None, 1.0),
        ("0", None, 0.0),
    ],
)
def test_values_are_compared_as_json(code: verifiers.Verifier, value: str, wanted: Any, expected: float) -> None:
    assert reward(code, f"return {value}", with_tests([[0, wanted]])) == expected


def test_only_arguments_enter_the_sandbox_with_the_configured_limits(
    code: verifiers.Verifier, sandbox: TrustingSandbox
) -> None:
    reward(code, "return {}")
    assert sandbox.seen == [("def solve(x):\n    return {}", [0, 2, 3])]
    assert sandbox.limits == (3.0, 128)


def test_a_program_runs_once_for_the_same_arguments(code: verifiers.Verifier, sandbox: TrustingSandbox) -> None:
    items = [(PROBLEM, "return x"), (PROBLEM, "return x"), (with_tests([[1, 1]]), "return x")]
    assert [verdict.reward for verdict in code.verify_many(items)] == [0.0, 0.0, 1.0]
    assert len(sandbox.seen) == 2


def test_a_broken_sandbox_is_no_verdict_and_is_not_remembered(
    code: verifiers.Verifier, sandbox: TrustingSandbox
) -> None:
    sandbox.broken = True
    (verdict,) = code.verify_many([(PROBLEM, PROBLEM.answer)])
    assert verdict.reward is None
    assert "no machine" in verdict.reason
    sandbox.broken = False
    assert reward(code, PROBLEM.answer) == 1.0


def test_too_few_results_are_wrong() -> None:
    class Short(TrustingSandbox):
        def execute(self, program: str, entry: str, calls: Sequence[Any]) -> Execution:
            return Execution((1,), "")

    assert reward(verifiers.build(CONFIG, Short(0, 0)), PROBLEM.answer) == 0.0


@pytest.mark.parametrize("tests", [None, [], [1], [[1]], [[1, 2, 3]], "x"])
def test_a_problem_without_tests(code: verifiers.Verifier, tests: Any) -> None:
    with pytest.raises(DataError, match=r"problem p: tests: got .*; expected a list of \[argument, expected\] pairs"):
        reward(code, "return 1", with_tests(tests))


def test_close_closes_the_sandbox(code: verifiers.Verifier, sandbox: TrustingSandbox) -> None:
    code.close()
    assert not sandbox.closed  # none was opened
    reward(code, "return 1")
    code.close()
    assert sandbox.closed


def problems(count: int = 20) -> list[Problem]:
    return [
        Problem(f"p{i}", "code", "?", f"return x + {i}", extra={"tests": [[0, i], [1, i + 1]]}) for i in range(count)
    ]


def test_self_test_passes_on_sound_problems(code: verifiers.Verifier, sandbox: TrustingSandbox) -> None:
    verifiers.self_test(code, problems(), "code")
    verifiers.self_test(code, problems(1), "code")
    verifiers.self_test(verifiers.build(ExactVerifier(), sandbox), problems(), "d")


def test_self_test_finds_a_wrong_reference(code: verifiers.Verifier) -> None:
    wrong = [Problem("p0", "code", "?", "return 5", extra={"tests": [[0, 1]]})]
    with pytest.raises(DataError, match=r"code: verifier self-test failed: got reward 0\.0 for its reference answer"):
        verifiers.self_test(code, wrong, "code")


def test_self_test_finds_a_broken_sandbox(code: verifiers.Verifier, sandbox: TrustingSandbox) -> None:
    sandbox.broken = True
    with pytest.raises(DataError, match=r"verifier self-test failed: got reward None .*no machine"):
        verifiers.self_test(code, problems(), "code")


class Fixed:
    """Every valid program returns what the first test wants; ``lenient`` accepts even what is no program."""

    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient

    def verify_many(self, items: Sequence[tuple[Problem, str]]) -> list[Any]:
        from stages.core.records import Verdict

        return [Verdict(float(self._lenient or answer.startswith("return"))) for _, answer in items]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("lenient", "named"), [(True, "nonsense"), (False, "every other problem's reference")])
def test_self_test_finds_a_verifier_that_accepts_too_much(lenient: bool, named: str) -> None:
    with pytest.raises(DataError, match=f"verifier self-test failed: got reward 1.0 for {named}"):
        verifiers.self_test(Fixed(lenient), problems(), "code")

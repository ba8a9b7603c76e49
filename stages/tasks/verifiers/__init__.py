"""Verifiers: from an answer to a verdict. One file and one row of ``VERIFIERS`` each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stages.core.errors import DataError
from stages.core.ports import Sandbox
from stages.core.records import Problem, Verdict
from stages.tasks.config import VerifierConfig
from stages.tasks.verifiers.code import CodeExecution
from stages.tasks.verifiers.exact import ExactMatch

SELF_TEST_PROBLEMS = 8
NO_ANSWER_AT_ALL = "( this is no answer"
"""Not valid as code, and nobody's reference."""


class Verifier(Protocol):
    def verify_many(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """One verdict per (problem, answer), in order. Reward 0: the answer is wrong; None: it could not be judged.

        Raises:
            DataError: a problem lacks what the verifier needs.
        """
        ...

    def close(self) -> None:
        """End what the verifier started; it may be used again."""
        ...


VERIFIERS: dict[str, Callable[[Any, Callable[..., Sandbox]], Verifier]] = {
    "exact": lambda config, sandbox: ExactMatch(),
    "code": CodeExecution,
}


def build(config: VerifierConfig, sandbox: Callable[..., Sandbox]) -> Verifier:
    """Args:
    sandbox: the port, called as ``sandbox(timeout_s=, memory_mb=)`` when a program is to be run.
    """
    return VERIFIERS[config.type](config, sandbox)


def self_test(verifier: Verifier, problems: Sequence[Problem], domain: str) -> None:
    """Prove the verifier on a sample before anything is trained on its word.

    The reference answer must score 1. Nonsense must not, nor may every problem accept its neighbour's reference.

    Raises:
        DataError: "verifier self-test failed", with the first offending problem.
    """
    sample = problems[:: max(1, len(problems) // SELF_TEST_PROBLEMS)][:SELF_TEST_PROBLEMS]
    gold = verifier.verify_many([(problem, problem.answer) for problem in sample])
    for problem, verdict in zip(sample, gold, strict=True):
        if verdict.reward != 1.0:
            raise _failed(domain, problem, "its reference answer", verdict, "1")
    nonsense = verifier.verify_many([(problem, NO_ANSWER_AT_ALL) for problem in sample])
    for problem, verdict in zip(sample, nonsense, strict=True):
        if verdict.reward != 0.0:
            raise _failed(domain, problem, "nonsense", verdict, "0")
    crossed = [
        (problem, other.answer)
        for problem, other in zip(sample, [*sample[1:], sample[0]], strict=True)
        if problem.answer != other.answer
    ]
    verdicts = verifier.verify_many(crossed)
    if verdicts and all(verdict.reward == 1.0 for verdict in verdicts):
        raise _failed(domain, crossed[0][0], "every other problem's reference", verdicts[0], "0")


def _failed(domain: str, problem: Problem, what: str, verdict: Verdict, expected: str) -> DataError:
    return DataError(
        f"{domain}: verifier self-test failed",
        got=f"reward {verdict.reward} for {what} on problem {problem.id} ({verdict.reason})",
        expected=expected,
        fix="correct the reference, the verifier's config or the sandbox",
    )

"""The answer equals the reference after white space around both is stripped."""

from __future__ import annotations

from collections.abc import Sequence

from stages.core.records import Problem, Verdict


class ExactMatch:
    def verify_many(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [_verdict(problem.answer.strip(), answer.strip()) for problem, answer in items]

    def close(self) -> None:
        pass


def _verdict(expected: str, answer: str) -> Verdict:
    if answer == expected:
        return Verdict(1.0, "equal")
    return Verdict(0.0, f"got {answer[:40]!r}, expected {expected[:40]!r}" if answer else "no answer")

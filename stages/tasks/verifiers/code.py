"""The answer is a program: each of the problem's ``tests`` is executed in the sandbox, the values are compared here.

Expected values never enter the sandbox. Right means one JSON value per test, all equal: leaving early, an exception or
an object that claims to equal everything is wrong. What the machinery causes is no verdict at all (None).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from stages.core.errors import DataError
from stages.core.ports import Execution, Sandbox
from stages.core.records import Problem, Verdict
from stages.tasks.config import CodeVerifier

MEMORY = 4096
"""Executions remembered: the rollouts of a group often hold the same program."""


class CodeExecution:
    """Args:
    sandbox: ``sandbox(timeout_s=, memory_mb=)``; opened at the first program.
    """

    def __init__(self, config: CodeVerifier, sandbox: Callable[..., Sandbox]) -> None:
        self._config = config
        self._make_sandbox = sandbox
        self._sandbox: Sandbox | None = None
        self._remembered = functools.lru_cache(maxsize=MEMORY)(self._execute)

    def verify_many(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [self._verdict(problem, answer) for problem, answer in items]

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def _verdict(self, problem: Problem, answer: str) -> Verdict:
        if not answer.strip():
            return Verdict(0.0, "no answer")
        arguments, expected = _tests(problem)
        # Not str.format: braces in the template or in the answer are code.
        program = self._config.template.replace("{answer}", answer)
        try:
            execution = self._remembered(program, json.dumps(arguments))
        except _SandboxFailed as error:
            return Verdict(None, f"sandbox: {error}")
        return _judge(execution, arguments, expected)

    def _execute(self, program: str, arguments: str) -> Execution:
        """Raises:
        _SandboxFailed: an exception is not remembered, so the next rollout tries again.
        """
        if self._sandbox is None:
            self._sandbox = self._make_sandbox(timeout_s=self._config.timeout_s, memory_mb=self._config.memory_mb)
        execution = self._sandbox.execute(program, self._config.entry, json.loads(arguments))
        if execution.infra_error:
            raise _SandboxFailed(execution.infra_error)
        return execution


class _SandboxFailed(Exception):
    """Nothing may be concluded about the program."""


def _tests(problem: Problem) -> tuple[list[Any], list[Any]]:
    """Arguments and expected values.

    Raises:
        DataError: ``tests`` is not a list of pairs.
    """
    tests = problem.extra.get("tests")
    if not isinstance(tests, list) or not tests or any(not isinstance(t, list) or len(t) != 2 for t in tests):
        raise DataError(
            f"problem {problem.id}: tests",
            got="nothing" if tests is None else str(tests)[:80],
            expected="a list of [argument, expected] pairs",
            fix="give the verifier 'code' problems with tests",
        )
    return [argument for argument, _ in tests], [expected for _, expected in tests]


def _judge(execution: Execution, arguments: Sequence[Any], expected: Sequence[Any]) -> Verdict:
    if execution.error:
        return Verdict(0.0, execution.error)
    if len(execution.outputs) != len(expected):
        return Verdict(0.0, f"{len(execution.outputs)} results for {len(expected)} calls")
    for argument, value, wanted in zip(arguments, execution.outputs, expected, strict=True):
        if not same_value(value, wanted):
            return Verdict(0.0, f"f({argument!r:.40}) gave {value!r:.40}, expected {wanted!r:.40}")
    return Verdict(1.0, f"{len(expected)} tests passed")


def same_value(value: Any, wanted: Any) -> bool:
    """Equality of JSON values: 2 equals 2.0, true is no number."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(same_value, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(same_value(value[key], wanted[key]) for key in value)
    return bool(value == wanted)

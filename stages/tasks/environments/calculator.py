"""The micro agent's tool: one step of a chain per call.

``<call> v +3 </call>`` gives the step's result under both exceptions, but a uniformly wrong digit now and then: an
error that no policy can train away. ``<call> check v +3 w </call>`` names the step and the claimed result ``w`` and
gives the exact result always.
"""

from __future__ import annotations

import random
import re

from stages.core.keys import derive_seed
from stages.core.records import Problem
from stages.tasks.chain import Rules, result
from stages.tasks.config import CalculatorEnvironment

ERROR = "<obs> error </obs>"
"""Observation of a call that is none of the two forms; it takes a turn like any other."""

_PLAIN = re.compile(r"<call> (\d) ([+-])(\d) </call>\s*$")
_CHECK = re.compile(r"<call> check (\d) ([+-])(\d) \d </call>\s*$")


class Calculator:
    """Environment of the calculator."""

    def __init__(self, config: CalculatorEnvironment) -> None:
        self._config = config

    def start(self, problem: Problem, seed: int) -> CalculatorSession:
        return CalculatorSession(self._config, seed)


class CalculatorSession:
    """One rollout's calls. Every draw is addressed by (seed, turn), so a repeated call may err differently."""

    def __init__(self, config: CalculatorEnvironment, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._turn = 0

    def step(self, text: str) -> str | None:
        """The observation for the call that ends ``text``; None once the turns are used up."""
        if self._turn >= self._config.max_turns:
            return None
        self._turn += 1
        if found := _CHECK.search(text):
            return f"<obs> {_exact(found)} </obs>"
        if found := _PLAIN.search(text):
            return f"<obs> {self._flaky(_exact(found))} </obs>"
        return ERROR

    def _flaky(self, exact: int) -> int:
        rng = random.Random(derive_seed(self._seed, "calculator", self._turn))
        if rng.random() >= self._config.error_rate:
            return exact
        return (exact + rng.randint(1, 9)) % 10


def _exact(found: re.Match[str]) -> int:
    value, op, operand = found.groups()
    return result(int(value), "+" if op == "+" else "-", int(operand), Rules.BOTH)

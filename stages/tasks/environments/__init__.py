"""Environments: what answers a model that calls tools. One file and one row of ``ENVIRONMENTS`` each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stages.core.records import Problem
from stages.tasks.config import EnvironmentConfig
from stages.tasks.environments.calculator import ERROR, Calculator


class Session(Protocol):
    """One rollout's conversation with its environment."""

    def step(self, text: str) -> str | None:
        """Answer one tool call.

        Args:
            text: what the model wrote since the last turn, ending in the call.

        Returns:
            The observation with its tags, or None: no turn is left and the response ends, truncated. A malformed call
            gets an observation that says so; nothing that a model writes raises.
        """
        ...


class Environment(Protocol):
    def start(self, problem: Problem, seed: int) -> Session:
        """A fresh session; ``seed`` and the turn decide every draw."""
        ...


ENVIRONMENTS: dict[str, Callable[[EnvironmentConfig], Environment]] = {"calculator": Calculator}

OBSERVATION_WORDS = tuple(ERROR.split())
"""Words that observations hold beside digits: a word-level vocabulary needs them even if no demonstration errs."""


def build(config: EnvironmentConfig) -> Environment:
    return ENVIRONMENTS[config.type](config)

"""A domain at run time: its problems with everything needed to pose and score them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stages.core.ports import Sandbox
from stages.core.records import Problem
from stages.tasks import environments, verifiers
from stages.tasks.config import DomainConfig
from stages.tasks.environments import Environment
from stages.tasks.problems import load_problems
from stages.tasks.verifiers import Verifier


@dataclass(frozen=True, slots=True)
class Domain:
    """One row of the config's ``domains``, opened."""

    name: str
    spec: DomainConfig
    problems: tuple[Problem, ...]
    verifier: Verifier
    environment: Environment | None
    """None: one turn."""


def open_domain(name: str, spec: DomainConfig, problems: Path, sandbox: Callable[..., Sandbox]) -> Domain:
    """Load the problems, build verifier and environment, and prove the verifier on a sample of the problems.

    Raises:
        DataError: unusable problems, or a verifier that does not tell a right answer from a wrong one.
    """
    loaded = tuple(load_problems(problems, name))
    verifier = verifiers.build(spec.verifier, sandbox)
    verifiers.self_test(verifier, loaded, name)
    environment = environments.build(spec.environment) if spec.environment else None
    return Domain(name, spec, loaded, verifier, environment)

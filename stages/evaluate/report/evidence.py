"""What the pictures are drawn from, beside the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.core.context import METRICS
from stages.core.files import read_jsonl
from stages.core.manifest import LOGS
from stages.core.records import Budget
from stages.evaluate.comparison import Subjects


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric over one training run."""

    steps: tuple[int, ...]
    """Optimiser steps, ascending."""
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Inputs that may be missing are empty; their sections then say so."""

    subjects: Subjects
    curves: Mapping[str, Mapping[str, Curve]]
    """By plan node, e.g. ``rl.code.low``, then metric."""
    budgets: Mapping[str, Sequence[Budget]]
    """By domain."""


def read_curves(folder: Path) -> dict[str, Curve]:
    """The metrics that a training artifact logged, by name; empty where it kept no log."""
    steps: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for record in read_jsonl(folder / LOGS / METRICS):
        for name, value in record["metrics"].items():
            steps.setdefault(name, []).append(record["step"])
            values.setdefault(name, []).append(value)
    return {name: Curve(tuple(steps[name]), tuple(values[name])) for name in steps}

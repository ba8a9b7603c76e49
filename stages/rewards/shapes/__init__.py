"""Reward shapes: one small file and one row of ``SHAPES`` each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stages.core.records import FloatArray
from stages.rewards.config import ShapeConfig
from stages.rewards.group import GroupView
from stages.rewards.shapes import budget_override, none


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of the table."""

    apply: Callable[[Any, GroupView], FloatArray]
    """(config, group) -> shaped rewards_G before gate and warm-up."""
    budgeted: bool
    """Whether it compares lengths with a budget; else the gate ``reachable`` is the same as ``success``."""


SHAPES: Mapping[str, Shape] = {
    "none": Shape(none.shape, budgeted=False),
    "budget_override": Shape(budget_override.shape, budgeted=True),
}


def shape(config: ShapeConfig, group: GroupView) -> FloatArray:
    """Shaped rewards_G of one group, before gate and warm-up; NaN where unscored."""
    return SHAPES[config.type].apply(config, group)

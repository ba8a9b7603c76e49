"""Whom a length term may act on (methods, 4.2). Axis: G rollouts of one group."""

from __future__ import annotations

import numpy as np

from stages.rewards.config import BudgetOverride, Gate, ShapeConfig
from stages.rewards.group import BoolArray


def is_reachable(correct_G: BoolArray, over_budget_G: BoolArray) -> bool:
    """Whether the group holds a correct rollout within its budget."""
    return bool((correct_G & ~over_budget_G).any())


def acts_on(gate: Gate, correct_G: BoolArray, over_budget_G: BoolArray) -> BoolArray:
    """Which rollouts the length term may change.

    Args:
        over_budget_G: all False for a shape without a budget, which makes ``reachable`` the same as ``success``.
    """
    if gate == "none":
        return np.ones_like(correct_G)
    if gate == "success" or is_reachable(correct_G, over_budget_G):
        return correct_G
    return np.zeros_like(correct_G)


def gate_warning(gate: Gate, shape: ShapeConfig) -> str | None:
    """A warning where this pair is known to destroy accuracy, else None."""
    if gate == "success" and isinstance(shape, BudgetOverride) and shape.over_value < 0:
        return (
            f"gate 'success' with over_value {shape.over_value:g}: a right but long answer ranks below a wrong one, "
            "which collapsed accuracy in trials; use over_value 0 or gate 'reachable'"
        )
    return None

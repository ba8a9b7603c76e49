"""What a reward shape sees of one group, and when a rollout is over its limit (methods, sections 3 and 4).

Axis: G rollouts of one group, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stages.core.records import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

LIMIT_SLACK = 1e-9
"""Relative. Exactly tau * b0 is allowed, and 0.29 * 100 is 28.999999999999996 in binary: 29 tokens must pass."""


def limit_tokens(tau: float, b0_tokens: float, cap_tokens: float) -> float:
    """The limit in force, in tokens: min(tau * b0, cap)."""
    return min(tau * b0_tokens, float(cap_tokens))


def exceeds(tokens: npt.ArrayLike, limit: float) -> BoolArray:
    """Whether token counts are strictly above ``limit``, rounding of the limit forgiven."""
    return np.asarray(np.asarray(tokens, dtype=np.float64) > limit * (1 + LIMIT_SLACK))


@dataclass(frozen=True, slots=True, eq=False)
class GroupView:
    """The rollouts of one problem in one step."""

    rewards_G: FloatArray
    """Raw task reward R in [0, 1]; NaN: unscored."""
    correct_G: BoolArray
    """R at or above the domain's success threshold; False where unscored."""
    counted_G: IntArray
    """T(y), what a budget limits, in tokens."""
    response_G: IntArray
    """All model tokens of the response."""
    truncated_G: BoolArray
    """Cut by a cap: over budget whatever the length."""
    b0_tokens: float
    """The problem's frozen budget, raw."""
    tau: float
    """Multiplier in force at this step, dimensionless."""
    cap_tokens: int
    """Hard cap on model tokens."""
    step: int
    """Optimiser step, from 0."""

    def __post_init__(self) -> None:
        sizes = {
            array.shape for array in (self.rewards_G, self.correct_G, self.counted_G, self.response_G, self.truncated_G)
        }
        if len(sizes) != 1 or self.rewards_G.ndim != 1:
            raise ValueError(f"arrays of one group have shapes {sorted(sizes)}")
        if np.isinf(self.rewards_G).any():
            raise ValueError(f"reward {self.rewards_G.tolist()} is not finite")
        if (self.correct_G & ~self.scored_G).any():
            raise ValueError("a rollout is correct and unscored")

    @property
    def scored_G(self) -> BoolArray:
        """Which rollouts have a reward."""
        return ~np.isnan(self.rewards_G)

    @property
    def over_budget_G(self) -> BoolArray:
        """Which rollouts are truncated or strictly over min(tau * b0, cap)."""
        return self.truncated_G | exceeds(self.counted_G, limit_tokens(self.tau, self.b0_tokens, self.cap_tokens))

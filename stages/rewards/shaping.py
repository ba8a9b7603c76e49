"""Shape, gate and warm-up together: from raw rewards to what the optimiser sees. Axis: G rollouts of one group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.core.records import FloatArray
from stages.rewards.config import Gate, ShapeConfig, WarmupConfig
from stages.rewards.gate import acts_on, is_reachable
from stages.rewards.group import BoolArray, GroupView
from stages.rewards.schedules import length_weight
from stages.rewards.shapes import SHAPES, shape


@dataclass(frozen=True, slots=True, eq=False)
class ShapedGroup:
    """One group after shaping; the raw rewards stay in the GroupView."""

    rewards_G: FloatArray
    """Shaped reward r; NaN where unscored."""
    scored_G: BoolArray
    over_budget_G: BoolArray
    """Truncated or over min(tau * b0, cap), whether or not the length term acted."""
    reachable: bool
    """The group holds a correct rollout within budget."""


def shape_group(shape_config: ShapeConfig, gate: Gate, warmup: WarmupConfig, group: GroupView) -> ShapedGroup:
    """r = R + weight * (shaped - R) for the rollouts that the gate lets the length term act on, else r = R."""
    over_budget_G = group.over_budget_G
    budgeted = SHAPES[shape_config.type].budgeted
    acts_G = acts_on(gate, group.correct_G, over_budget_G if budgeted else np.zeros_like(over_budget_G))
    weight = length_weight(warmup, group.step)
    # This form of R + weight * (shaped - R) is exact at weights 0 and 1.
    mixed_G = (1 - weight) * group.rewards_G + weight * shape(shape_config, group)
    return ShapedGroup(
        rewards_G=np.where(acts_G, mixed_G, group.rewards_G),
        scored_G=group.scored_G,
        over_budget_G=over_budget_G,
        reachable=is_reachable(group.correct_G, over_budget_G),
    )

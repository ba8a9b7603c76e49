"""Shaped rewards to advantages (methods, section 5).

Axis: N rollouts of the whole batch, gathered over all ranks; groups are found by id, whatever the order.
Means and deviations are exactly rounded sums (``math.fsum``), so no order of the batch changes a bit of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.core.records import FloatArray, IntArray
from stages.rewards.config import CreditConfig
from stages.rewards.group import BoolArray

DEAD_RANGE = 1e-6
"""A group whose shaped rewards span no more than this carries no signal."""

MIN_SCORED = 2

Fate = Literal["live", "too_few_scored", "all_wrong", "all_over_budget", "all_correct", "mixed"]
"""A live group, or why a group is dead, first reason that holds; ``all_over_budget`` groups hold correct rollouts."""


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What the trainer is told, and how many groups told it something."""

    advantages_N: FloatArray
    """0 for unscored rollouts and for dead groups."""
    live_N: BoolArray
    """Scored members of live groups: they alone enter the loss and its denominators."""
    groups: int
    live_groups: int
    dead_all_wrong: int
    dead_all_correct: int
    dead_all_over_budget: int
    dead_mixed: int
    """Dead though right and wrong rollouts are in it: shaping made them equal."""
    dead_too_few_scored: int
    frac_reward_zero_std: float
    """Share of groups whose shaped rewards are all equal."""
    frac_dead_groups: float

    @property
    def live_share(self) -> float:
        """Live groups / groups; 0 without groups."""
        return self.live_groups / self.groups if self.groups else 0.0


def advantages(
    config: CreditConfig,
    group_ids: Sequence[str],
    shaped_N: FloatArray,
    scored_N: BoolArray,
    correct_N: BoolArray,
    over_budget_N: BoolArray,
) -> Credit:
    """Advantages of a batch, each group by itself.

    Args:
        group_ids: one id a rollout.
        shaped_N: shaped rewards; ignored where not scored.
        correct_N: by raw reward.
        over_budget_N: only tells the dead groups apart.

    Raises:
        ValueError: lengths differ, or a scored reward is not finite.
    """
    size = len(group_ids)
    if {len(shaped_N), len(scored_N), len(correct_N), len(over_budget_N)} != {size}:
        raise ValueError(f"{size} group ids, {len(shaped_N)} rewards, {len(scored_N)} scored marks")
    if not np.isfinite(shaped_N[scored_N]).all():
        raise ValueError("a scored reward is not finite")
    advantages_N = np.zeros(size)
    live_N = np.zeros(size, dtype=bool)
    fates: Counter[Fate] = Counter()
    for members in _members(group_ids):
        scored = members[scored_N[members]]
        fate = _fate(shaped_N[scored], correct_N[scored], over_budget_N[scored])
        fates[fate] += 1
        if fate == "live":
            live_N[scored] = True
            advantages_N[scored] = _group_advantages(config, shaped_N[scored], bool(correct_N[scored].all()))
    return _credit(advantages_N, live_N, fates)


def lr_scale_of(live_share: float, floor: float) -> float:
    """Factor on the learning rate: min(1, live share / floor); 1 where ``floor`` is 0.

    An adaptive optimiser turns the small gradient of a nearly dead batch into a full-size step; this undoes it.
    """
    return min(1.0, live_share / floor) if floor > 0 else 1.0


def _members(group_ids: Sequence[str]) -> list[IntArray]:
    positions: dict[str, list[int]] = {}
    for position, group in enumerate(group_ids):
        positions.setdefault(group, []).append(position)
    return [np.array(found, dtype=np.int64) for found in positions.values()]


def _fate(shaped_G: FloatArray, correct_G: BoolArray, over_budget_G: BoolArray) -> Fate:
    if len(shaped_G) < MIN_SCORED:
        return "too_few_scored"
    if shaped_G.max() - shaped_G.min() > DEAD_RANGE:
        return "live"
    if not correct_G.any():
        return "all_wrong"
    if over_budget_G.all():
        return "all_over_budget"
    return "all_correct" if correct_G.all() else "mixed"


def _group_advantages(config: CreditConfig, shaped_G: FloatArray, all_correct: bool) -> FloatArray:
    centred_G = shaped_G - math.fsum(shaped_G) / len(shaped_G)
    if config.type == "centered" or (config.type == "auto" and all_correct):
        return centred_G
    std = math.sqrt(math.fsum(centred_G**2) / (len(shaped_G) - 1))
    return centred_G / (std + config.eps)


def _credit(advantages_N: FloatArray, live_N: BoolArray, fates: Counter[Fate]) -> Credit:
    groups = fates.total()
    dead = groups - fates["live"]
    equal = dead - fates["too_few_scored"]
    return Credit(
        advantages_N=advantages_N,
        live_N=live_N,
        groups=groups,
        live_groups=fates["live"],
        dead_all_wrong=fates["all_wrong"],
        dead_all_correct=fates["all_correct"],
        dead_all_over_budget=fates["all_over_budget"],
        dead_mixed=fates["mixed"],
        dead_too_few_scored=fates["too_few_scored"],
        frac_reward_zero_std=equal / groups if groups else 0.0,
        frac_dead_groups=dead / groups if groups else 0.0,
    )

"""Warm-up of the length term and movement of tau (methods, section 6): pure functions of logged state."""

from __future__ import annotations

import math

from stages.rewards.config import TauAnnealing, WarmupConfig


def length_weight(warmup: WarmupConfig, step: int) -> float:
    """Weight of the length term at optimiser step ``step`` (from 0), in [0, 1].

    0 before ``steps``; then the ramp rises in equal parts and is complete ``ramp_steps`` later.
    """
    since = step - warmup.steps + 1
    return min(1.0, max(0.0, since / (warmup.ramp_steps + 1)))


def tau_at(annealing: TauAnnealing, start: float, end: float, clock: int) -> float:
    """tau when the schedule's clock (from 0, see ``next_clock``) stands at ``clock``: ``start`` at 0, ``end`` from
    ``annealing.steps`` on."""
    if clock >= annealing.steps:
        return end
    share = clock / annealing.steps
    if annealing.kind == "geometric":
        return float(start * (end / start) ** share)
    if annealing.kind == "cosine":
        share = (1 - math.cos(math.pi * share)) / 2
    return start + (end - start) * share


def next_clock(annealing: TauAnnealing, clock: int, unreachable_share: float) -> int:
    """The clock after a step in which ``unreachable_share`` of the groups were unreachable: one on, or held."""
    return clock if unreachable_share > annealing.hold_above_unreachable else clock + 1

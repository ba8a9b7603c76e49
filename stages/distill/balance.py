"""Weights of the (domain, effort) cells (methods, section 7, Balance). No torch."""

from __future__ import annotations

from collections.abc import Mapping

from stages.distill.config import Balance

LOW, HIGH = 0.05, 20.0
SMOOTHING = 0.8
"""Share of the old gap in the running one: a step's gap is that of a few rollouts."""


def token_weights(balance: Balance, tokens: Mapping[str, float], gaps: Mapping[str, float]) -> dict[str, float]:
    """Weight of each *token* of a cell, such that the weighted tokens of the step sum to 1.

    Args:
        tokens: trained tokens of each cell in this step, over all ranks; cells with none are left out.
        gaps: running mean reverse KL per token of each cell; a cell without one counts as average.
    """
    present = {cell: count for cell, count in tokens.items() if count > 0}
    if not present:
        return {}
    known = [gaps[cell] for cell in present if cell in gaps]
    reference = sum(known) / len(known) if known else 0.0
    raw = {}
    for cell, count in present.items():
        share = 1.0 / count if balance.target == "uniform" else 1.0
        ratio = gaps[cell] / reference if cell in gaps and reference > 0 else 1.0
        raw[cell] = share * min(HIGH, max(LOW, ratio**balance.gap_exponent))
    total = sum(raw[cell] * present[cell] for cell in present)
    return {cell: weight / total for cell, weight in raw.items()}


def running_gaps(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """The running gaps after a step that measured ``new``."""
    return {
        cell: SMOOTHING * old[cell] + (1 - SMOOTHING) * new[cell]
        if cell in old and cell in new
        else new.get(cell, old.get(cell, 0.0))
        for cell in {*old, *new}
    }

"""Collapse watch (methods, 4.2): a cell whose raw accuracy falls away is stopped, its best step known.

The state is frozen and of plain numbers: ``dataclasses.asdict`` saves it, ``CollapseState(**saved)`` restores it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.rewards.config import CollapseWatch


@dataclass(frozen=True, slots=True)
class CollapseState:
    """What the watch has seen."""

    start: float | None = None
    """Raw accuracy of the first step; None: nothing seen yet."""
    below_steps: int = 0
    """Steps in a row below the alarm line."""
    best: float | None = None
    """Highest raw accuracy of a step."""
    best_step: int | None = None
    """Its optimiser step, the first of equals."""


def observe(watch: CollapseWatch, state: CollapseState, step: int, accuracy: float) -> CollapseState:
    """The state after a step with this raw accuracy (share of scored rollouts that are correct)."""
    start = accuracy if state.start is None else state.start
    better = state.best is None or accuracy > state.best
    return CollapseState(
        start=start,
        below_steps=state.below_steps + 1 if accuracy < watch.share * start else 0,
        best=accuracy if better else state.best,
        best_step=step if better else state.best_step,
    )


def has_collapsed(watch: CollapseWatch, state: CollapseState) -> bool:
    """Whether the accuracy stayed below the line for the whole patience."""
    return state.below_steps >= watch.patience_steps

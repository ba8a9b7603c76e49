"""Configs of reward shapes, gate, schedules and credit (methods, sections 4 to 6). No torch, no numpy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.core.config import Config


class NoShape(Config):
    """r = R."""

    type: Literal["none"] = "none"


class BudgetOverride(Config):
    """r = over_value if T > tau * b0, else R (K3, 2607.24653)."""

    type: Literal["budget_override"] = "budget_override"
    over_value: float = Field(-1.0, ge=-1, le=0)
    """Reward of a rollout over its limit: -1 as published, 0 as in Toggle."""


ShapeConfig = Annotated[NoShape | BudgetOverride, Field(discriminator="type")]

Gate = Literal["none", "success", "reachable"]
"""Whom a length term may act on (methods, 4.2)."""


class WarmupConfig(Config):
    """The length term is off for ``steps`` optimiser steps, then rises linearly over ``ramp_steps``."""

    steps: int = Field(0, ge=0)
    ramp_steps: int = Field(0, ge=0)


class TauAnnealing(Config):
    """tau moves from ``start`` to the cell's own value over ``steps`` optimiser steps, then holds."""

    start: float | Literal["parent"] = "parent"
    """A multiplier, or the parent tier's tau (the cell's own value where the parent is the cold start)."""
    steps: int = Field(0, ge=0)
    """0: the cell's own tau from the first step."""
    kind: Literal["linear", "cosine", "geometric"] = "linear"
    hold_above_unreachable: float = Field(1.0, ge=0, le=1)
    """The schedule's clock stands still while more than this share of groups is unreachable; 1: never."""


class CollapseWatch(Config):
    """Stops a cell whose raw accuracy falls away, keeping its best checkpoint."""

    share: float = Field(0.5, gt=0, le=1)
    """Alarm below this share of the starting accuracy..."""
    patience_steps: int = Field(8, ge=1)
    """...for this many steps in a row."""


class CreditConfig(Config):
    """How shaped rewards become advantages (methods, section 5)."""

    type: Literal["auto", "grpo", "centered"] = "auto"
    eps: float = Field(1e-6, ge=0)
    """Added to the standard deviation."""
    live_share_floor: float = Field(0.5, ge=0, le=1)
    """The learning rate is scaled by min(1, live share / this); 0 turns it off."""


class LossConfig(Config):
    """Token-level clipped ratio."""

    eps_low: float = Field(0.2, gt=0)
    eps_high: float = Field(0.2, gt=0)
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    constant_tokens: int | None = Field(None, ge=1)
    """Configured response length for ``constant``."""

    @model_validator(mode="after")
    def _constant_needs_length(self) -> LossConfig:
        if self.aggregation == "constant" and self.constant_tokens is None:
            raise ValueError("constant_tokens beside aggregation 'constant'")
        return self

"""The learning rate as a pure function of the step (no torch), so that a resumed run goes on exactly."""

from __future__ import annotations

import math

from stages.train.config import OptimizerConfig


def lr_scale(config: OptimizerConfig, step: int, total: int) -> float:
    """The factor on every peak learning rate at one optimiser step.

    ``step`` counts from 0. Warm-up is linear and never 0: step 0 gets 1 / warmup_steps, step warmup_steps - 1 gets 1.
    The cosine runs from step warmup_steps, where it is 1, to step total, where it would reach ``min_lr_ratio``.

    Args:
        step: the optimiser step about to be done.
        total: steps of the whole stage.

    Returns:
        Dimensionless, in (0, 1], or 0 where a cosine to 0 has ended.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    progress = min(1.0, (step - config.warmup_steps) / max(1, total - config.warmup_steps))
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))

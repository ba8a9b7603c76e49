"""Oracle: values worked by hand from the formula."""

from __future__ import annotations

import pytest

from stages.train.config import OptimizerConfig
from stages.train.schedule import lr_scale

PEAK = 1e-3


def rates(config: OptimizerConfig, *steps: int) -> list[float]:
    return [config.lr * lr_scale(config, step, 100) for step in steps]


def test_warm_up_is_linear_and_starts_above_zero() -> None:
    config = OptimizerConfig(lr=PEAK, warmup_steps=10)
    assert rates(config, 0, 4, 9, 10, 99) == pytest.approx([1e-4, 5e-4, PEAK, PEAK, PEAK])


def test_cosine_to_zero() -> None:
    """Step 50: 40 of 90 cosine steps, (1 + cos 80 deg) / 2 = .5868240888; step 55: half way."""
    config = OptimizerConfig(lr=PEAK, warmup_steps=10, schedule="cosine", min_lr_ratio=0)
    assert rates(config, 10, 50, 55, 100) == pytest.approx([PEAK, 5.868240888e-4, 5e-4, 0], abs=1e-12)


def test_cosine_ends_at_its_floor() -> None:
    """Half way between 1 and .2 is .6."""
    config = OptimizerConfig(lr=1.0, schedule="cosine", min_lr_ratio=0.2)
    assert rates(config, 0, 50, 100) == pytest.approx([1.0, 0.6, 0.2])


def test_without_warm_up_or_schedule_the_rate_is_the_peak() -> None:
    assert rates(OptimizerConfig(lr=PEAK), 0, 99) == [PEAK, PEAK]


def test_a_warm_up_as_long_as_the_stage_never_divides_by_zero() -> None:
    config = OptimizerConfig(lr=1.0, warmup_steps=100, schedule="cosine")
    assert rates(config, 99) == [1.0]

"""Oracles: a stated example, the normal approximation, and invariants of resampling problems."""

from __future__ import annotations

import numpy as np
import pytest

from stages.evaluate import bootstrap
from stages.evaluate.bootstrap import Contrast, Interval, Sums, contrast, means, sums_by_problem

LOW_FLAT, HIGH_FLAT = (410, 395, 430, 388, 402, 415), (400, 421, 390, 412, 397, 405)
LOW_APART, HIGH_APART = (300, 340, 280, 360, 310, 330), (1100, 1250, 990, 1400, 1010, 1180)


def sums(values: object, prefix: str = "p") -> Sums:
    """One row a problem, one measure."""
    column = np.asarray(values, dtype=np.float64)[:, None]
    return sums_by_problem([f"{prefix}{index:04d}" for index in range(len(column))], column)


def fold(low: tuple[int, ...], high: tuple[int, ...]) -> Interval:
    # Other problems on each side: the stated interval is that of independent groups.
    return contrast(sums(low, "a"), sums(high, "b"), 2000, seed=1).ratios[0]


def test_tiers_inside_the_noise_do_not_separate() -> None:
    """Oracle: the stated example, ratio .994 with an interval of about .96 to 1.03."""
    found = fold(LOW_FLAT, HIGH_FLAT)
    assert found.value == pytest.approx(2425 / 2440)
    assert found.low == pytest.approx(0.96, abs=0.01)
    assert found.high == pytest.approx(1.03, abs=0.01)
    assert found.low < 1.15


def test_tiers_far_apart_separate() -> None:
    """Oracle: the stated example, ratio 3.61."""
    found = fold(LOW_APART, HIGH_APART)
    assert found.value == pytest.approx(6930 / 1920)
    assert found.low is not None
    assert 1.15 < found.low < found.value < found.high


def test_interval_of_a_mean_is_the_normal_one() -> None:
    """Oracle: mean +- 1.96 s / sqrt(n), to 8% of its half width at 4000 resamples."""
    values = np.random.default_rng(3).normal(20, 6, 400)
    half = 1.96 * values.std() / np.sqrt(400)
    (found,) = means(sums(values), 4000, seed=5)
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.08 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.08 * half)


def test_interval_of_a_ratio_of_paired_cells_is_the_normal_one() -> None:
    """Oracle: the delta method on paired residuals, sd(y - r x) / (mean(x) sqrt(n)); pairing makes it 3 times smaller
    here than independent groups would."""
    rng = np.random.default_rng(4)
    x = rng.normal(20, 6, 400)
    y = 2 * x + rng.normal(0, 4, 400)
    ratio = y.mean() / x.mean()
    half = 1.96 * (y - ratio * x).std() / (x.mean() * np.sqrt(400))
    found = contrast(sums(x), sums(y), 4000, seed=5).ratios[0]
    assert found.low == pytest.approx(ratio - half, abs=0.08 * half)
    assert found.high == pytest.approx(ratio + half, abs=0.08 * half)


def test_problems_are_resampled_not_rows() -> None:
    """Oracle: repeating every row four times adds no problem, so the interval stays as it is."""
    values = np.random.default_rng(3).normal(20, 6, 50)
    ids = [f"p{index:02d}" for index in range(50)]
    once = means(sums_by_problem(ids, values[:, None]), 500, seed=2)
    often = means(sums_by_problem(ids * 4, np.tile(values, 4)[:, None]), 500, seed=2)
    assert often[0].low == pytest.approx(once[0].low)
    assert often[0].high == pytest.approx(once[0].high)


def test_a_mean_is_over_rows() -> None:
    """Oracle: hand-worked; one problem with rows 1 and 2, another with 6: the mean is 3, not 3.75."""
    (found,) = means(sums_by_problem(["a", "a", "b"], np.array([[1.0], [2.0], [6.0]])), 100, seed=0)
    assert found.value == 3.0
    assert (found.low, found.high) == (1.5, 6.0)  # all draws of one problem


def test_the_same_problems_are_paired() -> None:
    """Oracle: y = x + 3 and y = 2 x leave nothing to chance in difference and ratio, problem by problem."""
    x = np.random.default_rng(7).uniform(5, 50, 30)
    shifted = contrast(sums(x), sums(x + 3), 300, seed=1).differences[0]
    doubled = contrast(sums(x), sums(2 * x), 300, seed=1).ratios[0]
    for found, exact in ((shifted, 3.0), (doubled, 2.0)):
        assert (found.value, found.low, found.high) == pytest.approx((exact, exact, exact))


def test_other_problems_are_independent() -> None:
    """Oracle: the variance of a difference of independent means is the sum of the two variances."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(10, 3, 200), rng.normal(10, 4, 200)
    half = 1.96 * np.sqrt(x.var() / 200 + y.var() / 200)
    found = contrast(sums(x, "a"), sums(y, "b"), 4000, seed=1).differences[0]
    assert found.high is not None
    assert found.low is not None
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.08)


def test_one_missing_problem_does_not_undo_the_pairing() -> None:
    """Oracle: y = x + 3 on 59 shared problems, one problem extra on the left: nearly nothing is left to chance."""
    x = np.random.default_rng(7).uniform(5, 50, 60)
    found = contrast(sums(x), sums((x + 3)[:59]), 300, seed=1).differences[0]
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 0.3


def test_same_seed_same_interval_and_another_seed_another() -> None:
    cell = sums(np.random.default_rng(1).normal(0, 1, 40))
    assert means(cell, 200, seed=1) == means(cell, 200, seed=1)
    assert means(cell, 200, seed=1) != means(cell, 200, seed=2)


def test_resamples_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the normal approximation again, with blocks of 37 resamples, which do not divide 4000 evenly."""
    monkeypatch.setattr(bootstrap, "DRAWS_AT_ONCE", 37 * 400)
    test_interval_of_a_mean_is_the_normal_one()


def test_a_ratio_to_nothing_has_no_value() -> None:
    """Oracle: the rule; a tier that never thinks has mean 0, and a finite number would be a lie."""
    found = contrast(sums([0, 0, 0]), sums([1, 2, 3]), 100, seed=0)
    assert found.ratios[0] == Interval(None, None, None)
    assert found.differences[0].value == 2.0


def test_a_ratio_that_is_nothing_in_some_resamples_is_unbounded_above() -> None:
    """Oracle: of two problems with 0 and 2 tokens a quarter of the resamples draws only the first."""
    found = contrast(sums([0, 2]), sums([3, 3]), 400, seed=0).ratios[0]
    assert found == Interval(3.0, 1.5, None)


def test_rows_without_a_problem_are_refused() -> None:
    with pytest.raises(ValueError, match="1 problem ids for 2 rows"):
        sums_by_problem(["a"], np.zeros((2, 1)))
    with pytest.raises(ValueError, match="0 problem ids for 0 rows"):
        sums_by_problem([], np.zeros((0, 1)))


def test_a_contrast_covers_every_measure() -> None:
    """Oracle: hand-worked means (1, 10) and (2, 40)."""
    first = sums_by_problem(["a", "b"], np.array([[1.0, 10.0], [1.0, 10.0]]))
    second = sums_by_problem(["a", "b"], np.array([[2.0, 40.0], [2.0, 40.0]]))
    assert contrast(first, second, 100, seed=0) == Contrast(
        ratios=[Interval(2.0, 2.0, 2.0), Interval(4.0, 4.0, 4.0)],
        differences=[Interval(1.0, 1.0, 1.0), Interval(30.0, 30.0, 30.0)],
    )

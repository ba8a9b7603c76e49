"""Oracles: the worked values of the methods, section 10, and cells worked out by hand."""

from __future__ import annotations

import json

import pytest
from synthetic_run import row

from stages.core.errors import DataError
from stages.evaluate.metrics import (
    LengthError,
    TierPoint,
    best_feasible,
    cell_metrics,
    correct_per_million,
    length_error,
)

TIERS = {"low": TierPoint(0.62, 3000), "high": TierPoint(0.74, 11000), "max": TierPoint(0.78, 26000)}


def test_a_cell_worked_by_hand() -> None:
    """Lengths 10, 20, 30, 140: mean 50, median 25, p90 = 30 + .7 * 110, p99 = 30 + .97 * 110; 140 > 3 * 25."""
    rows = [
        row("code.low", "p0", 10, True),
        row("code.low", "p1", 20, True),
        row("code.low", "p2", 30, False),
        row("code.low", "p3", 140, False, truncated=True),
    ]
    cell = cell_metrics(rows, 200, seed=1)
    assert cell["accuracy"]["value"] == 0.5
    assert 0 <= cell["accuracy"]["low"] < 0.5 < cell["accuracy"]["high"] <= 1
    tokens = cell["tokens"]
    assert (tokens["mean"], tokens["median"]) == (50.0, 25.0)
    assert (tokens["p90"], tokens["p99"]) == pytest.approx((107.0, 136.7))
    assert 10 <= tokens["low"] < 50 < tokens["high"] <= 140
    assert (cell["answer_tokens_mean"], cell["total_tokens_mean"]) == (2.0, 52.0)
    assert (cell["long_share"], cell["truncated_share"], cell["unscored_share"]) == (0.25, 0.25, 0.0)
    assert cell["reasoning_share"] == pytest.approx(200 / 208)
    assert cell["correct_per_million_tokens"] == pytest.approx(2 / 208 * 1e6)
    assert (cell["problems"], cell["responses"]) == (4, 4)


def test_unscored_rows_leave_every_mean_and_are_counted() -> None:
    """Oracle: the same cell without the unscored row, but for its share and the number of responses."""
    kept = [row("code.low", "p0", 10, True), row("code.low", "p1", 20, False)]
    broken = row("code.low", "p2", 999, False, reward=None, truncated=True)
    with_it, without = cell_metrics([*kept, broken], 200, seed=1), cell_metrics(kept, 200, seed=1)
    assert (with_it["unscored_share"], with_it["responses"], with_it["problems"]) == (pytest.approx(1 / 3), 3, 2)
    changed = {"unscored_share", "responses", "buckets"}
    assert {key: value for key, value in with_it.items() if key not in changed} == {
        key: value for key, value in without.items() if key not in changed
    }


def test_buckets_are_the_same_numbers_of_fewer_rows() -> None:
    rows = [
        row("code.low", f"p{index}", 10 + index, True, difficulty=("easy", "hard")[index % 2]) for index in range(8)
    ]
    rows.append(row("code.low", "open", 500, False, difficulty=None))
    rows.append(row("code.low", "lost", 500, False, difficulty="medium", reward=None))
    cell = cell_metrics(rows, 200, seed=1)
    assert set(cell["buckets"]) == {"easy", "hard"}  # nothing of the medium bucket was scored
    easy = cell_metrics([item for item in rows if item["difficulty"] == "easy"], 200, seed=1)
    assert cell["buckets"]["easy"] == {key: value for key, value in easy.items() if key != "buckets"}
    assert cell["tokens"]["mean"] == pytest.approx((sum(range(10, 18)) + 500) / 9)


def test_a_cell_is_json_without_a_number_that_is_none() -> None:
    """Oracle: JSON has no NaN; a cell that generated nothing has no tokens to divide by."""
    cell = cell_metrics([row("code.low", "p0", 0, False, answer_tokens=0, total_tokens=0)], 100, seed=1)
    assert json.loads(json.dumps(cell, allow_nan=False)) == cell
    assert cell["correct_per_million_tokens"] is None
    assert cell["reasoning_share"] is None


def test_a_cell_without_a_scored_row() -> None:
    with pytest.raises(DataError, match=r"code\.low: got 1 rows, none of them scored"):
        cell_metrics([row("code.low", "p0", 1, False, reward=None)], 100, seed=1)


def test_correct_answers_per_million_tokens() -> None:
    found = [correct_per_million(point.accuracy, point.tokens) for point in TIERS.values()]
    assert found == pytest.approx([206.67, 67.27, 30.00], abs=0.005)


@pytest.mark.parametrize(
    ("cap", "best"), [(11000, "high"), (10999, "low"), (26000, "max"), (10**6, "max"), (2999, None)]
)
def test_best_feasible_tier(cap: float, best: str | None) -> None:
    """Oracle: worked; at 11000 the high tier just fits, below 3000 nothing does."""
    assert best_feasible(TIERS, cap) == best


def test_of_equally_accurate_tiers_the_shorter_one() -> None:
    assert best_feasible({"max": TierPoint(0.8, 900), "high": TierPoint(0.8, 300)}, 1000) == "high"


def test_length_error() -> None:
    """Oracle: worked; deviations 36, 23, 62, 125, mean 61.5; means 1783.5 against 1796."""
    found = length_error((512, 1024, 2048, 3600), (548, 1001, 2110, 3475))
    assert found == LengthError(pytest.approx(1783.5 / 1796 - 1), 61.5, 0.0)


def test_length_error_counts_what_is_far_off() -> None:
    """Oracle: exactly 500 off is not yet a miss."""
    assert length_error((1000, 1000), (1500, 1501)).off_share == 0.5


@pytest.mark.parametrize(("targets", "tokens"), [((), ()), ((1.0,), (1.0, 2.0)), ((0.0,), (1.0,))])
def test_length_error_refuses_what_has_no_answer(targets: tuple[float, ...], tokens: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="length targets"):
        length_error(targets, tokens)

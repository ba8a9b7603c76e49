"""The budget table. Oracle: the worked value of methods 3, hand-counted tables, invariants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.errors import DataError, StageFailed
from stages.core.records import Budget, Problem, TokenCounts
from stages.rollout.budgets import binding_share, check_cap, difficulty_third, estimate, read_parquet, write_parquet


@dataclass(frozen=True)
class Row:
    """The part of a rollout that the table reads."""

    problem: Problem
    counts: TokenCounts
    reward: float | None


def rows(problem_id, *found, difficulty=None, domain="general") -> list[Row]:
    """Rollouts of one problem from (tokens, reward) or (tokens, reward, truncated)."""
    problem = Problem(id=problem_id, domain=domain, prompt="", answer="", difficulty=difficulty)
    return [Row(problem, TokenCounts(tokens, 2, tokens + 4, any(cut)), reward) for tokens, reward, *cut in found]


def table(rollouts, percentile=50.0, floor=0.0, threshold=1.0) -> list[Budget]:
    return estimate(rollouts, percentile=percentile, floor_tokens=floor, success_threshold=threshold)


def test_worked_budget():
    """500, 900, 2500 correct and a wrong 120: 900."""
    (budget,) = table(rows("p", (500, 1), (900, 1), (2500, 1), (120, 0)))
    assert budget.b0_tokens == 900.0
    assert (budget.samples, budget.correct, budget.pass_rate) == (4, 3, 0.75)
    assert (budget.median_correct_tokens, budget.median_tokens, budget.median_answer_tokens) == (900, 700, 2)
    assert (budget.bucket, budget.method, budget.fallback) == ("easy", "p50", "none")


def test_wrong_answers_never_set_a_budget():
    """With 120 and 130 wrong it is still 900; all rows would give 500."""
    (budget,) = table(rows("p", (500, 1), (900, 1), (2500, 1), (120, 0), (130, 0)))
    assert budget.b0_tokens == 900.0


def test_percentiles_interpolate_linearly():
    """25th of 10, 20, 40: 15."""
    (budget,) = table(rows("p", (10, 1), (20, 1), (40, 1)), percentile=25)
    assert (budget.b0_tokens, budget.method) == (15.0, "p25")


def test_truncated_rollouts_never_enter():
    (budget,) = table(rows("p", (10, 1), (500, 1, True)))
    assert (budget.b0_tokens, budget.correct, budget.samples) == (10, 1, 2)


def test_unscored_rollouts_count_nowhere():
    (budget,) = table(rows("p", (10, 1), (500, None), (30, 0)))
    assert (budget.samples, budget.pass_rate, budget.median_tokens) == (2, 0.5, 20)


def test_the_floor_applies():
    (budget,) = table(rows("p", (0, 1), (0, 1)), floor=1)
    assert budget.b0_tokens == 1


def test_success_threshold_says_what_is_correct():
    (budget,) = table(rows("p", (10, 0.6), (20, 0.4)), threshold=0.5)
    assert budget.b0_tokens == 10


def test_a_problem_without_success_takes_its_buckets_median():
    found = table(
        rows("a", (10, 1), difficulty="hard")
        + rows("b", (20, 1), difficulty="hard")
        + rows("c", (400, 1), difficulty="easy")
        + rows("d", (7, 0), (9, 0), difficulty="hard")
    )
    assert (found[3].b0_tokens, found[3].fallback, found[3].median_correct_tokens) == (15, "bucket", None)
    assert [budget.fallback for budget in found[:3]] == ["none"] * 3


def test_a_bucket_without_success_takes_its_domains_median():
    found = table(
        rows("a", (10, 1), difficulty="easy")
        + rows("b", (30, 1), difficulty="medium")
        + rows("c", (7, 0), difficulty="hard")
        + rows("x", (999, 1), difficulty="hard", domain="code")
    )
    assert (found[2].b0_tokens, found[2].fallback) == (20, "domain")


def test_a_domain_without_success_fails_by_name():
    with pytest.raises(StageFailed, match=r"budgets of code: got no correct"):
        table(rows("a", (10, 1)) + rows("b", (10, 0), domain="code"))


@pytest.mark.parametrize(
    ("correct", "samples", "third"),
    [(0, 12, "hard"), (3, 12, "hard"), (4, 12, "medium"), (7, 12, "medium"), (8, 12, "easy"), (12, 12, "easy")],
)
def test_thirds_of_the_pass_rate(correct, samples, third):
    assert difficulty_third(correct, samples) == third


def test_a_problem_with_nothing_scored_is_hard_and_falls_back():
    found = table(rows("a", (10, 1)) + rows("b", (30, None), (50, None)))
    assert (found[1].bucket, found[1].samples, found[1].pass_rate, found[1].fallback) == ("hard", 0, 0, "domain")
    assert found[1].median_tokens == 40


@given(st.lists(st.tuples(st.integers(1, 99), st.sampled_from([0, 1, None])), min_size=1, max_size=12), st.integers())
def test_the_order_of_rollouts_changes_nothing(found, seed):
    known = rows("known", (50, 1))
    straight = table(known + rows("p", *found))
    order = np.random.default_rng(abs(seed)).permutation(len(found))
    assert table(known + rows("p", *[found[i] for i in order])) == straight


def some(*b0) -> list[Budget]:
    (one,) = table(rows("p", (10, 1)))
    return [replace(one, problem_id=str(index), b0_tokens=value) for index, value in enumerate(b0)]


def test_binding_share_is_strict():
    assert binding_share(some(10, 20, 21, 30), 5, 100) == 0.5
    assert binding_share(some(100), 0.29, 29) == 0


def test_cap_that_seldom_binds_is_silent():
    assert check_cap(some(*[10] * 9, 30), 1, 20, "code.max") is None


def test_cap_that_binds_above_a_tenth_warns():
    warning = check_cap(some(10, 10, 30), 1, 20, "code.max")
    assert warning is not None
    assert warning.startswith("code.max: cap_tokens 20 below tau 1 x b0 for 33% of the problems")
    assert check_cap(some(10, 30), 1, 20, "code.max") is not None


def test_cap_that_binds_above_half_is_an_error():
    with pytest.raises(DataError, match=r"code.max: got cap_tokens 20 .* 67%"):
        check_cap(some(10, 30, 30), 1, 20, "code.max")


def test_an_empty_table_is_an_error():
    with pytest.raises(DataError, match="no rows"):
        binding_share([], 1, 10)


def test_parquet_round_trip(tmp_path: Path):
    """Every value, None included, comes back; provenance stands in the file."""
    budgets = table(rows("a", (500, 1), (901, 1)) + rows("b", (7, 0)))
    write_parquet(tmp_path / "budgets.parquet", budgets, {"tokenizer": "abc"})
    assert read_parquet(tmp_path / "budgets.parquet") == budgets
    assert budgets[1].median_correct_tokens is None
    assert pq.read_schema(tmp_path / "budgets.parquet").metadata == {b"tokenizer": b"abc"}
    assert [path.name for path in tmp_path.iterdir()] == ["budgets.parquet"]


def test_what_is_no_budget_table_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="missing"):
        read_parquet(tmp_path / "missing.parquet")
    (tmp_path / "broken.parquet").write_text("no")
    with pytest.raises(DataError, match="expected a budget table"):
        read_parquet(tmp_path / "broken.parquet")

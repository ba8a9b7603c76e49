"""Oracle: hand-worked buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import row

from stages.core.errors import DataError
from stages.core.files import append_jsonl
from stages.evaluate.rows import ROWS, by_cell, difficulty_thirds, read_rows, with_difficulty


def rates(*correct: tuple[int, int]) -> dict[str, str]:
    """Buckets of problems p0, p1, ... of which (correct, wrong) responses were seen."""
    return difficulty_thirds(
        row("code", f"p{index}", 10, right, difficulty=None)
        for index, (yes, no) in enumerate(correct)
        for right in [True] * yes + [False] * no
    )


def test_thirds_by_rank_of_the_pass_rate() -> None:
    assert rates((4, 0), (1, 3), (2, 2)) == {"p0": "easy", "p1": "hard", "p2": "medium"}


def test_equal_rates_keep_the_order_of_the_rows() -> None:
    assert rates((1, 1), (1, 1), (1, 1)) == {"p0": "hard", "p1": "medium", "p2": "easy"}


def test_a_pass_rate_of_zero_is_hard_even_beyond_a_third() -> None:
    assert rates((0, 2), (0, 2), (2, 0), (1, 1)) == {"p0": "hard", "p1": "hard", "p2": "easy", "p3": "medium"}


def test_unscored_responses_count_in_no_rate() -> None:
    """p0: one right answer of one scored, so it is easier than p1 with one of two; p2 has nothing scored: hard."""
    rows = [
        row("code", "p0", 10, True, difficulty=None),
        row("code", "p0", 10, False, difficulty=None, reward=None),
        row("code", "p1", 10, True, difficulty=None),
        row("code", "p1", 10, False, difficulty=None),
        row("code", "p2", 10, False, difficulty=None, reward=None),
    ]
    assert difficulty_thirds(rows) == {"p0": "easy", "p1": "medium", "p2": "hard"}


def test_a_stated_difficulty_is_kept() -> None:
    stated = row("code.low", "p0", 10, True, difficulty="easy")
    open_ = row("code.low", "p1", 10, True, difficulty=None)
    filled = with_difficulty([stated, open_], {"p0": "hard", "p1": "hard"})
    assert [item["difficulty"] for item in filled] == ["easy", "hard"]
    assert open_["difficulty"] is None  # the input is left as it was


def test_a_problem_that_the_cold_start_never_saw() -> None:
    with pytest.raises(DataError, match=r"code\.low: problem p7: got difficulty None; expected one of easy"):
        with_difficulty([row("code.low", "p7", 10, True, difficulty=None)], {})


def test_rows_are_read_back_and_sorted_by_cell(tmp_path: Path) -> None:
    written = [row("code.low", "p0", 10, True), row("code.max", "p0", 30, True), row("code.low", "p1", 11, False)]
    for item in written:
        append_jsonl(tmp_path / ROWS, item)
    assert read_rows(tmp_path) == written
    assert {name: len(rows) for name, rows in by_cell(written).items()} == {"code.low": 2, "code.max": 1}


def test_an_evaluation_without_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl: got no rows"):
        read_rows(tmp_path)

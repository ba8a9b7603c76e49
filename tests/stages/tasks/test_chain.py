"""Oracle: hand-worked results of the two exceptions."""

import pytest

from stages.tasks.chain import Rules, difficulty, result


@pytest.mark.parametrize(
    ("value", "op", "operand", "none", "e1", "both"),
    [
        (3, "+", 4, 7, 0, 0),  # E1 after an addition
        (9, "-", 2, 7, 0, 0),  # E1 after a subtraction
        (9, "*", 3, 7, 0, 0),  # E1 after a multiplication: 27 mod 10
        (3, "-", 1, 2, 2, 5),  # E2 after a subtraction only
        (1, "+", 1, 2, 2, 2),
        (4, "*", 3, 2, 2, 2),
        (1, "-", 4, 7, 0, 0),  # below zero wraps: -3 mod 10
        (8, "+", 4, 2, 2, 2),
        (5, "-", 1, 4, 4, 4),
    ],
)
def test_result_under_each_rule(value: int, op: str, operand: int, none: int, e1: int, both: int) -> None:
    assert [result(value, op, operand, rules) for rules in Rules] == [none, e1, both]


def test_difficulty_by_length_and_exceptions() -> None:
    assert [difficulty(length, 0) for length in (2, 3, 4)] == ["easy", "easy", "medium"]
    assert [difficulty(length, 1) for length in (2, 3, 4)] == ["medium", "hard", "hard"]
    assert [difficulty(length, 2) for length in (2, 3, 4)] == ["medium", "hard", "hard"]

"""Oracle: hand-worked results of the two exceptions."""

import pytest

from stages.tasks.chain import E1_DIGIT, E2_DIGIT, OPERANDS, Rules, difficulty, result
from stages.tasks.micro.code import FACTORS


@pytest.mark.parametrize(
    ("value", "op", "operand", "none", "e1", "both"),
    [
        (3, "+", 4, 7, 0, 0),  # E1 after an addition: 7 + 3 = 10
        (1, "-", 2, 9, 2, 2),  # E1 after a subtraction, below zero wraps
        (7, "*", 3, 1, 4, 4),  # E1 after a multiplication: 21 mod 10
        (3, "-", 1, 2, 2, 5),  # E2 after a subtraction only
        (2, "-", 4, 8, 8, 1),
        (1, "+", 1, 2, 2, 2),
        (4, "*", 3, 2, 2, 2),
        (8, "+", 4, 2, 2, 2),
        (5, "-", 1, 4, 4, 4),
    ],
)
def test_result_under_each_rule(value: int, op: str, operand: int, none: int, e1: int, both: int) -> None:
    assert [result(value, op, operand, rules) for rules in Rules] == [none, e1, both]


def test_the_exceptions_never_meet_and_each_operation_has_its_own() -> None:
    assert all(E1_DIGIT[action] != digit for action, digit in E2_DIGIT.items())
    assert set(E1_DIGIT) == {f"{op}{n}" for op in "+-" for n in OPERANDS} | {f"*{n}" for n in FACTORS}
    assert set(E2_DIGIT) == {f"-{n}" for n in OPERANDS}


def test_difficulty_by_length_and_exceptions() -> None:
    assert [difficulty(length, 0) for length in (2, 3, 4)] == ["easy", "easy", "medium"]
    assert [difficulty(length, 1) for length in (2, 3, 4)] == ["medium", "hard", "hard"]
    assert [difficulty(length, 2) for length in (2, 3, 4)] == ["medium", "hard", "hard"]

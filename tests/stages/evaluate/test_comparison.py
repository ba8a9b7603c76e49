"""Oracle: a comparison small enough to be worked out by hand; see ``tiny``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from synthetic_run import job, row

from stages.core.errors import DataError
from stages.evaluate.comparison import compare, subjects_of
from stages.evaluate.rows import Row

JOB = job(("code",), ("low", "max"), bootstrap=100)


def rows(cell: str, tokens: tuple[int, ...], correct: tuple[bool, ...]) -> list[Row]:
    """Problems p0 and p1 are easy, p2 and p3 hard."""
    return [
        row(cell, f"p{index}", length, right, difficulty="easy" if index < 2 else "hard")
        for index, (length, right) in enumerate(zip(tokens, correct, strict=True))
    ]


def tiny(**changes: list[Row]) -> dict[str, list[Row]]:
    """One domain, two tiers, four problems. Every answer is two tokens long."""
    return {
        "cold_start": rows("code", (20, 20, 20, 20), (True, True, False, False)),
        "code.low": rows("code.low", (10, 10, 10, 10), (True, True, False, False)),
        "code.max": rows("code.max", (20, 20, 40, 40), (True, True, True, True)),
        "student": [
            *rows("code.low", (10, 10, 12, 12), (True, True, True, False)),
            *rows("code.max", (20, 20, 44, 44), (True, True, True, False)),
        ],
        **changes,
    }


def compared(evaluations: dict[str, list[Row]]) -> dict[str, Any]:
    return compare(subjects_of(evaluations, JOB), JOB, seed=1, settings={"temperature": 1.0})


@pytest.fixture(scope="module")
def comparison() -> dict[str, Any]:
    return compared(tiny())


def by_bucket(records: list[dict[str, Any]], quantity: str) -> dict[str, float]:
    return {record["bucket"]: record[quantity]["value"] for record in records}


def test_the_head_states_what_is_compared(comparison: dict[str, Any]) -> None:
    assert comparison["version"] == 1
    assert (comparison["title"], comparison["domains"], comparison["efforts"]) == (
        "synthetic", ["code"], ["low", "max"]
    )  # fmt: skip
    assert comparison["settings"] == {"temperature": 1.0}


def test_every_subject_has_its_cells(comparison: dict[str, Any]) -> None:
    subjects = comparison["subjects"]
    accuracy = {name: {cell: item["accuracy"]["value"] for cell, item in of.items()} for name, of in subjects.items()}
    assert accuracy == {
        "cold_start": {"code": 0.5},
        "specialists": {"code.low": 0.5, "code.max": 1.0},
        "student": {"code.low": 0.75, "code.max": 0.75},
    }
    assert subjects["student"]["code.max"]["buckets"]["hard"]["accuracy"]["value"] == 0.5


def test_folds_by_bucket(comparison: dict[str, Any]) -> None:
    """Specialists: 30/10, 20/10, 40/10, and with the answer 32/12, 22/12, 42/12. Student: 32/11, 20/10, 44/12."""
    specialists = comparison["folds"]["specialists"]["code"]
    assert [(record["from"], record["to"]) for record in specialists] == [("low", "max")] * 3
    assert by_bucket(specialists, "fold") == pytest.approx({"all": 3.0, "easy": 2.0, "hard": 4.0})
    assert by_bucket(specialists, "fold_total") == pytest.approx({"all": 32 / 12, "easy": 22 / 12, "hard": 42 / 12})
    student = comparison["folds"]["student"]["code"]
    assert by_bucket(student, "fold") == pytest.approx({"all": 32 / 11, "easy": 2.0, "hard": 44 / 12})


def test_gains_by_bucket(comparison: dict[str, Any]) -> None:
    """Specialists gain 50 points, all of it on the hard problems; the student gains none."""
    assert by_bucket(comparison["gains"]["specialists"]["code"], "points") == {"all": 50.0, "easy": 0.0, "hard": 100.0}
    assert by_bucket(comparison["gains"]["student"]["code"], "points") == {"all": 0.0, "easy": 0.0, "hard": 0.0}


def test_hard_problems_that_all_turn_right_leave_nothing_to_chance(comparison: dict[str, Any]) -> None:
    """Paired problem by problem, each hard one goes from wrong to right: the interval has no width."""
    hard = next(item for item in comparison["gains"]["specialists"]["code"] if item["bucket"] == "hard")
    assert hard["points"] == {"value": 100.0, "low": 100.0, "high": 100.0}


def test_recovery(comparison: dict[str, Any]) -> None:
    """low: the teacher gained nothing, so recovery means nothing. max: the teacher gained 50 points, the student 25."""
    low, high = (comparison["recovery"][f"code.{effort}"] for effort in ("low", "max"))
    assert (low["teacher_gain_points"], low["recovery"]) == (0.0, None)
    assert low["student_minus_teacher_points"]["value"] == 25.0
    assert low["token_ratio"]["value"] == pytest.approx(1.1)
    assert (high["teacher_accuracy"], high["student_accuracy"]) == (1.0, 0.75)
    assert (high["teacher_gain_points"], high["recovery"]) == (50.0, 0.5)
    assert high["student_minus_teacher_points"]["value"] == -25.0
    assert high["token_ratio"]["value"] == pytest.approx(32 / 30)


@pytest.mark.parametrize(("cold", "recovery"), [(35, 1.0), (36, None)])
def test_recovery_begins_at_a_gain_of_two_points(cold: int, recovery: float | None) -> None:
    """Oracle: the rule; 36 of 50 is .72, and .72 - .70 is 2 points even where floating point has it a little less."""

    def fifty(cell: str, right: int) -> list[Row]:
        return [row(cell, f"p{index}", 10, index < right) for index in range(50)]

    found = compared(
        {
            "cold_start": fifty("code", cold),
            "code.low": fifty("code.low", 36),
            "code.max": fifty("code.max", 36),
            "student": [*fifty("code.low", 36), *fifty("code.max", 36)],
        }
    )
    assert found["recovery"]["code.max"]["recovery"] == recovery


def test_operating_point(comparison: dict[str, Any]) -> None:
    """Student: 3 right of 4 at both tiers, 13 and 34 generated tokens a response; equal accuracy, so the shorter."""
    point = comparison["operating_point"]["student"]["code"]
    assert (point["cap_tokens"], point["best_feasible"]) == (110, "low")
    assert [tier["mean_total_tokens"] for tier in point["tiers"]] == [13.0, 34.0]
    assert [tier["correct_per_million_tokens"] for tier in point["tiers"]] == pytest.approx([0.75e6 / 13, 0.75e6 / 34])
    assert comparison["operating_point"]["specialists"]["code"]["best_feasible"] == "max"


def test_a_comparison_is_json(comparison: dict[str, Any]) -> None:
    """Oracle: JSON has no NaN and no infinity."""
    json.dumps(comparison, allow_nan=False)


def test_the_same_rows_give_the_same_comparison(comparison: dict[str, Any]) -> None:
    assert compared(tiny()) == comparison


def test_three_tiers_are_compared_step_by_step_and_end_to_end() -> None:
    three = job(("code",), ("low", "high", "max"), bootstrap=100)
    tokens = {"low": 10, "high": 20, "max": 50}
    cells = {f"code.{effort}": rows(f"code.{effort}", (length,) * 4, (True,) * 4) for effort, length in tokens.items()}
    student = [item for found in cells.values() for item in found]
    subjects = subjects_of({"cold_start": tiny()["cold_start"], "student": student, **cells}, three)
    found = compare(subjects, three, seed=1, settings={})["folds"]["student"]["code"]
    steps = {(item["from"], item["to"]): item["fold"]["value"] for item in found if item["bucket"] == "all"}
    assert steps == {("low", "high"): 2.0, ("high", "max"): 2.5, ("low", "max"): 5.0}


def test_problems_without_a_difficulty_get_thirds_of_the_cold_start() -> None:
    """The cold start solves p0 and p1 of four: p2 and p3 have pass rate 0 and are hard, p0 is medium, p1 easy."""
    for found in (bare := tiny()).values():
        for item in found:
            item["difficulty"] = None
    fold = by_bucket(compared(bare)["folds"]["specialists"]["code"], "fold")
    assert fold == pytest.approx({"all": 3.0, "easy": 2.0, "medium": 2.0, "hard": 4.0})


def test_a_missing_specialist_is_named() -> None:
    with pytest.raises(DataError, match=r"evaluation of code\.max: got no rows of code\.max"):
        compared(tiny(**{"code.max": []}))


def test_a_student_without_one_of_its_cells_is_named() -> None:
    low_only = rows("code.low", (10, 10, 12, 12), (True,) * 4)
    with pytest.raises(DataError, match=r"evaluation of student: got no rows of code\.max"):
        compared(tiny(student=low_only))

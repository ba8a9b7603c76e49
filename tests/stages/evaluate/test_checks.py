"""Oracle: the stated limits. One passing comparison; each case moves one number over its limit and one check fails."""

from __future__ import annotations

from typing import Any

import pytest

from stages.evaluate.checks import checks

EFFORTS = ("low", "high", "max")


def interval(value: float, spread: float = 0.05) -> dict[str, float]:
    return {"value": value, "low": value - spread, "high": value + spread}


def records(**quantities: tuple[float, float, float]) -> list[dict[str, Any]]:
    """low to high, high to max, low to max, each over all problems and over the hard ones."""
    steps = (("low", "high"), ("high", "max"), ("low", "max"))
    return [
        {"from": low, "to": high, "bucket": bucket, **{name: interval(of[index]) for name, of in quantities.items()}}
        for index, (low, high) in enumerate(steps)
        for bucket in ("all", "hard")
    ]


@pytest.fixture
def good() -> dict[str, Any]:
    """A comparison that holds: nine cells, one of them 4 points below its teacher."""
    domains = ("general", "code", "agent")

    def both(**quantities: tuple[float, float, float]) -> dict[str, Any]:
        return {
            subject: {domain: records(**quantities) for domain in domains} for subject in ("specialists", "student")
        }

    recovery = {
        f"{domain}.{effort}": {"student_minus_teacher_points": interval(-1.0), "token_ratio": interval(1.0)}
        for domain in domains
        for effort in EFFORTS
    }
    recovery["code.low"]["student_minus_teacher_points"] = interval(-4.0)
    return {
        "domains": list(domains),
        "efforts": list(EFFORTS),
        "folds": both(fold=(1.9, 1.8, 3.4), fold_total=(1.7, 1.6, 2.8)),
        "gains": both(points=(20.0, 10.0, 30.0)),
        "recovery": recovery,
    }


def failed(comparison: dict[str, Any]) -> list[str]:
    return [check.name for check in checks(comparison) if not check.passed]


def test_a_knob_that_moves_passes_every_check(good: dict[str, Any]) -> None:
    found = checks(good)
    assert [check.name for check in found if not check.passed] == []
    assert len(found) == 2 * 3 * 7 + 3
    assert len({check.name for check in found}) == len(found)


@pytest.mark.parametrize(
    ("kind", "step", "bucket", "quantity", "new", "check"),
    [
        ("folds", ("low", "high"), "all", "fold", {"value": 1.29, "low": 1.2, "high": 1.4}, "fold"),
        ("folds", ("high", "max"), "all", "fold", {"value": 1.5, "low": 1.15, "high": 1.9}, "separation"),
        ("folds", ("low", "max"), "all", "fold", {"value": 2.49, "low": 2.3, "high": 2.7}, "span"),
        ("folds", ("low", "high"), "all", "fold_total", {"value": 1.0, "low": 0.9, "high": 1.1}, "total_tokens"),
        ("gains", ("high", "max"), "all", "points", {"value": -4.0, "low": -8.0, "high": -0.1}, "no_fall"),
        ("gains", ("low", "max"), "all", "points", {"value": 0.0, "low": -3.0, "high": 3.0}, "gain"),
        ("gains", ("low", "max"), "hard", "points", {"value": 9.0, "low": 0.0, "high": 18.0}, "hard_gain"),
    ],
)
def test_one_number_over_its_limit_fails_its_check(
    good: dict[str, Any], kind: str, step: tuple[str, str], bucket: str, quantity: str, new: Any, check: str
) -> None:
    for record in good[kind]["student"]["code"]:
        if (record["from"], record["to"]) == step and record["bucket"] == bucket:
            record[quantity] = new
    assert failed(good) == [f"student.code.{check}"]


def test_a_number_at_its_limit_still_passes_where_the_limit_is_included(good: dict[str, Any]) -> None:
    good["folds"]["student"]["code"][0]["fold"] = {"value": 1.3, "low": 1.2, "high": 1.4}
    good["gains"]["student"]["code"][2]["points"]["high"] = 0.0
    good["recovery"]["agent.max"]["token_ratio"] = interval(1.25)
    assert failed(good) == []


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ({"general.max": -3.0}, []),
        # .85 - .88 in floating point, in points
        ({"general.max": (0.85 - 0.88) * 100}, []),
        ({"general.max": -3.1}, ["student.near_teacher"]),
        ({"code.low": -6.0}, []),
        ({"code.low": -6.1}, ["student.worst_cell"]),
    ],
)
def test_the_student_stays_near_its_teachers(good: dict[str, Any], cells: dict[str, float], names: list[str]) -> None:
    for cell, points in cells.items():
        good["recovery"][cell]["student_minus_teacher_points"] = interval(points)
    assert failed(good) == names


@pytest.mark.parametrize("ratio", [0.79, 1.26])
def test_the_student_is_as_long_as_its_teachers(good: dict[str, Any], ratio: float) -> None:
    good["recovery"]["agent.low"]["token_ratio"] = interval(ratio)
    (check,) = [check for check in checks(good) if not check.passed]
    assert (check.name, check.value, check.limit) == ("student.token_ratio", ratio, (0.8, 1.25))
    assert "agent.low" in check.detail


def test_what_cannot_be_computed_fails(good: dict[str, Any]) -> None:
    """A domain without hard problems has no gain there, a teacher that never thinks gives no ratio."""
    good["gains"]["specialists"]["code"] = [
        record for record in good["gains"]["specialists"]["code"] if record["bucket"] != "hard"
    ]
    good["recovery"]["agent.low"]["token_ratio"] = {"value": None, "low": None, "high": None}
    assert failed(good) == ["specialists.code.hard_gain", "student.token_ratio"]
    values = {check.name: check.value for check in checks(good)}
    assert values["specialists.code.hard_gain"] is None


def test_two_tiers_need_no_span_and_one_tier_has_no_knob(good: dict[str, Any]) -> None:
    for kind in ("folds", "gains"):
        for subject in ("specialists", "student"):
            good[kind][subject] = {
                domain: [record for record in found if (record["from"], record["to"]) == ("low", "max")]
                for domain, found in good[kind][subject].items()
            }
    two = checks({**good, "efforts": ["low", "max"]})
    assert len(two) == 2 * 3 * 6 + 3
    assert all(check.passed for check in two)
    assert [check.name for check in checks({**good, "efforts": ["max"]})] == [
        "student.near_teacher",
        "student.worst_cell",
        "student.token_ratio",
    ]


def test_the_detail_names_every_step(good: dict[str, Any]) -> None:
    fold = next(check for check in checks(good) if check.name == "specialists.general.fold")
    assert fold.detail == "mean tokens rise from tier to tier; low to high 1.90, high to max 1.80"
    assert (fold.value, fold.limit) == (1.8, 1.3)

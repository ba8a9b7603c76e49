"""Promotion gates and model card. Oracle: a hand-made comparison with numbers on, inside and outside the limits."""

from __future__ import annotations

import copy
import json

import pytest

from stages.core.errors import DataError
from stages.export.config import GatesConfig
from stages.export.gates import GateResult, judge

DOMAINS, EFFORTS = ("general", "code"), ("low", "high", "max")


def cell(accuracy: float, tokens: float) -> dict:
    return {
        "accuracy": {"value": accuracy, "low": accuracy - 0.03, "high": accuracy + 0.03},
        "tokens": {"mean": tokens, "median": tokens, "p90": tokens, "p99": tokens, "low": tokens, "high": tokens},
        "answer_tokens_mean": 2.0,
        "total_tokens_mean": tokens + 4,
        "correct_per_million_tokens": 1e6 * accuracy / (tokens + 4),
        "truncated_share": 0.0,
        "unscored_share": 0.0,
        "problems": 300,
    }


def comparison() -> dict:
    """A student that passes every default gate."""
    points = {"low": (0.6, 10.0), "high": (0.85, 20.0), "max": (0.97, 40.0)}
    cells = {f"{domain}.{effort}": cell(*points[effort]) for domain in DOMAINS for effort in EFFORTS}
    folds = [
        {"from": lower, "to": higher, "bucket": bucket, "fold": {"value": 2.0, "low": low, "high": 2.2}}
        for lower, higher in (("low", "high"), ("high", "max"))
        for bucket, low in (("all", 1.9), ("easy", 0.9))
    ]
    return {
        "domains": list(DOMAINS),
        "efforts": list(EFFORTS),
        "subjects": {"student": cells, "specialists": copy.deepcopy(cells), "cold_start": {}},
        "folds": {"student": {domain: copy.deepcopy(folds) for domain in DOMAINS}},
        "recovery": {
            name: {"student_minus_teacher_points": {"value": 0.0}, "token_ratio": {"value": 1.0}} for name in cells
        },
    }


def failed(numbers: dict, gates: GatesConfig | None = None) -> list[str]:
    return [item.name for item in judge(gates or GatesConfig(), numbers, DOMAINS, EFFORTS) if not item.passed]


def by_name(numbers: dict, name: str, gates: GatesConfig | None = None) -> GateResult:
    (found,) = [item for item in judge(gates or GatesConfig(), numbers, DOMAINS, EFFORTS) if item.name == name]
    return found


def test_a_good_student_passes_every_gate():
    """2 domains: 2 pairs each for separation and order, 3 cells each for the other three gates."""
    found = judge(GatesConfig(), comparison(), DOMAINS, EFFORTS)
    assert len(found) == 2 * 2 * 2 + 3 * 6
    assert all(item.passed for item in found)


@pytest.mark.parametrize(("low", "passes"), [(1.1501, True), (1.15, False), (0.96, False)])
def test_tiers_separate_when_the_lower_end_is_above_the_limit(low, passes):
    """The whole domain counts: the easy bucket at 0.9 fails nothing."""
    numbers = comparison()
    numbers["folds"]["student"]["code"][2]["fold"]["low"] = low
    assert failed(numbers) == ([] if passes else ["min_fold.code.max"])


@pytest.mark.parametrize(("high", "passes"), [(0.57, True), (0.569, False), (0.9, True)])
def test_accuracy_may_fall_by_the_limit(high, passes):
    """0.6 - 0.57 is 3 points, though 100 * (0.6 - 0.57) is 3.0000000000000027."""
    numbers = comparison()
    numbers["subjects"]["student"]["general.high"]["accuracy"]["value"] = high
    assert failed(numbers) == ([] if passes else ["max_accuracy_drop_points.general.high"])


@pytest.mark.parametrize(("points", "passes"), [(4.0, True), (-6.0, True), (-6.01, False)])
def test_student_near_its_teacher(points, passes):
    numbers = comparison()
    numbers["recovery"]["code.low"]["student_minus_teacher_points"]["value"] = points
    assert failed(numbers) == ([] if passes else ["student_within_points.code.low"])
    assert by_name(numbers, "student_within_points.code.low").value == points


@pytest.mark.parametrize(("ratio", "passes"), [(0.8, True), (1.25, True), (0.79, False), (1.26, False)])
def test_token_ratio_band(ratio, passes):
    numbers = comparison()
    numbers["recovery"]["general.max"]["token_ratio"]["value"] = ratio
    assert failed(numbers) == ([] if passes else ["token_ratio.general.max"])


@pytest.mark.parametrize(("share", "passes"), [(0.05, True), (0.051, False)])
def test_truncated_share(share, passes):
    numbers = comparison()
    numbers["subjects"]["student"]["code.max"]["truncated_share"] = share
    assert failed(numbers) == ([] if passes else ["max_truncated_share.code.max"])


@pytest.mark.parametrize("value", [None, float("nan")])
def test_what_was_not_measured_fails(value):
    numbers = comparison()
    numbers["recovery"]["general.max"]["token_ratio"]["value"] = value
    found = by_name(numbers, "token_ratio.general.max")
    assert (found.passed, found.value) == (False, None)
    assert found.detail.startswith("not measured")
    json.dumps(found.limit, allow_nan=False)


def test_unmeasured_accuracy_fails_both_its_pairs():
    numbers = comparison()
    numbers["subjects"]["student"]["general.high"]["accuracy"]["value"] = None
    assert failed(numbers) == ["max_accuracy_drop_points.general.high", "max_accuracy_drop_points.general.max"]


def test_none_turns_a_gate_off():
    off = GatesConfig(
        min_fold=None,
        max_accuracy_drop_points=None,
        student_within_points=None,
        token_ratio=None,
        max_truncated_share=None,
    )
    assert judge(off, {}, DOMAINS, EFFORTS) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("folds", "student", "code"), "no folds.student.code"),
        (("subjects", "student", "code.high"), "no subjects.student.code.high"),
        (("recovery", "code.max"), "no recovery.code.max"),
        (("recovery", "code.max", "token_ratio"), "no recovery.code.max.token_ratio"),
    ],
)
def test_a_comparison_with_a_hole_is_refused(path, message):
    numbers = comparison()
    place = numbers
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    with pytest.raises(DataError, match=message):
        judge(GatesConfig(), numbers, DOMAINS, EFFORTS)


def test_a_missing_pair_of_tiers_is_refused():
    numbers = comparison()
    del numbers["folds"]["student"]["general"][0]
    with pytest.raises(DataError, match="from low to high"):
        judge(GatesConfig(), numbers, DOMAINS, EFFORTS)

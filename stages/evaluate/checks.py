"""Is there a knob, and does the student have it? Each check is one number against one limit.

These describe the run; whether a candidate is promoted is decided later, by the gates of the config.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MIN_FOLD = 1.3
"""Mean tokens of a tier over those of the next lower one..."""
MIN_FOLD_LOW = 1.15
"""...and the lower end of its 95% interval."""
MIN_SPAN = 2.5
"""Mean tokens of the highest tier over those of the lowest, where there are three tiers or more."""
NEAR_POINTS = 3.0
"""A student's cell is near its teacher when it is at most this far below it in accuracy..."""
NEAR_SHARE = 8 / 9
"""...and this share of the cells must be near..."""
WORST_POINTS = -6.0
"""...and none further below than this."""
TOKEN_RATIO = (0.8, 1.25)
"""Band of mean tokens student / teacher in every cell."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One number against one limit."""

    name: str
    """``subject.domain.what``, or ``student.what`` over all cells."""
    passed: bool
    value: float | None
    """None: it could not be computed, and the check failed."""
    limit: float | tuple[float, float]
    """A bound, or a band for the value to lie in."""
    detail: str
    """What was asked and what was seen, for a person."""


def checks(comparison: Json) -> list[Check]:
    """Every check, in the order of the report.

    Args:
        comparison: ``comparison.json`` without its checks.
    """
    found: list[Check] = []
    for subject in ("specialists", "student"):
        for domain in comparison["domains"]:
            found += _knob(comparison, subject, domain)
    return [*found, *_student(comparison["recovery"])]


def _knob(comparison: Json, subject: str, domain: str) -> Iterator[Check]:
    """The checks of one domain; a single tier has no knob and no checks."""
    efforts: Sequence[str] = comparison["efforts"]
    if len(efforts) < 2:
        return
    folds = _by_step(comparison["folds"][subject][domain])
    gains = _by_step(comparison["gains"][subject][domain])
    steps = [(low, high, "all") for low, high in pairwise(efforts)]
    ends = (efforts[0], efforts[-1])
    name = f"{subject}.{domain}"
    what = "mean tokens rise from tier to tier"
    yield _least(f"{name}.fold", what, steps, folds, "fold", "value", MIN_FOLD)
    what = "lower end of the 95% interval of the rise in mean tokens from tier to tier"
    yield _least(f"{name}.separation", what, steps, folds, "fold", "low", MIN_FOLD_LOW, strict=True)
    if len(efforts) > 2:
        what = "mean tokens of the highest tier over those of the lowest"
        yield _least(f"{name}.span", what, [(*ends, "all")], folds, "fold", "value", MIN_SPAN)
    what = "tokens rise with the answer counted too, so thinking did not move there"
    yield _least(f"{name}.total_tokens", what, steps, folds, "fold_total", "value", 1.0, strict=True)
    what = "accuracy does not fall beyond noise: upper end of the gain's 95% interval, in points"
    yield _least(f"{name}.no_fall", what, steps, gains, "points", "high", 0.0)
    what = "the highest tier beats the lowest in accuracy, in points"
    yield _least(f"{name}.gain", what, [(*ends, "all")], gains, "points", "value", 0.0, strict=True)
    what = "lower end of the 95% interval of the gain from lowest to highest tier on hard problems, in points"
    yield _least(f"{name}.hard_gain", what, [(*ends, "hard")], gains, "points", "low", 0.0, strict=True)


def _by_step(records: Sequence[Json]) -> dict[tuple[str, str, str], Json]:
    return {(record["from"], record["to"], record["bucket"]): record for record in records}


def _least(
    name: str,
    what: str,
    steps: Sequence[tuple[str, str, str]],
    records: Mapping[tuple[str, str, str], Json],
    quantity: str,
    end: str,
    limit: float,
    *,
    strict: bool = False,
) -> Check:
    """The smallest number over ``steps`` against a lower limit; a step without a number fails the check."""
    values = {step: records[step][quantity][end] if step in records else None for step in steps}
    seen = ", ".join(f"{low} to {high} {_number(value)}" for (low, high, _), value in values.items())
    known = [value for value in values.values() if value is not None]
    value = min(known) if len(known) == len(values) else None
    passed = value is not None and (value > limit if strict else value >= limit)
    return Check(name, passed, value, limit, f"{what}; {seen}")


def _student(recovery: Mapping[str, Json]) -> Iterator[Check]:
    # Rounded, so that exactly 3 points are not lost to the last bit of .85 - .88.
    points = {cell: round(record["student_minus_teacher_points"]["value"], 9) for cell, record in recovery.items()}
    near = sum(value >= -NEAR_POINTS for value in points.values())
    share = near / len(points)
    worst = min(points, key=lambda cell: points[cell])
    yield Check(
        "student.near_teacher", share >= NEAR_SHARE, share, NEAR_SHARE,
        f"share of cells at most {NEAR_POINTS:g} points below their teacher; {near} of {len(points)}",
    )  # fmt: skip
    yield Check(
        "student.worst_cell", points[worst] >= WORST_POINTS, points[worst], WORST_POINTS,
        f"no cell more than {-WORST_POINTS:g} points below its teacher; {worst} {points[worst]:+.1f}",
    )  # fmt: skip
    ratios = {cell: record["token_ratio"]["value"] for cell, record in recovery.items()}
    far = max(ratios, key=lambda cell: _distance(ratios[cell]))
    value = ratios[far]
    low, high = TOKEN_RATIO
    yield Check(
        "student.token_ratio", value is not None and low <= value <= high, value, TOKEN_RATIO,
        f"mean tokens student / teacher within {low:g} and {high:g} in every cell; furthest off {far} {_number(value)}",
    )  # fmt: skip


def _distance(ratio: float | None) -> float:
    """How far a ratio is from 1, alike in both directions; a ratio without a value is infinitely far."""
    return abs(math.log(ratio)) if ratio else math.inf


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"

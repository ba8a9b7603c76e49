"""Promotion gates (methods, section 10): pure, over the numbers of ``comparison.json``.

Departure from the sources: accuracy is compared in percentage points, never as a share of a small gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stages.core.errors import DataError
from stages.export.config import GatesConfig

SLACK = 1e-9
"""What rounding may add to a difference of shares before it counts."""

Comparison = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GateResult:
    """One number against one limit."""

    name: str
    """``gate.domain`` or ``gate.domain.effort``."""
    passed: bool
    value: float | None
    """None: the number was not measured, and the gate fails."""
    limit: float | tuple[float, float]
    detail: str
    """What was compared with what, for a person."""


def judge(
    gates: GatesConfig, comparison: Comparison, domains: Sequence[str], efforts: Sequence[str]
) -> list[GateResult]:
    """Every gate that is on, for every domain or cell.

    Args:
        comparison: the content of ``comparison.json``.
        efforts: in ascending order.

    Raises:
        DataError: the comparison lacks a domain, a cell or a number.
    """
    found: list[GateResult] = []
    for gate in (_separation, _accuracy_order, _near_teacher, _token_band, _truncation):
        found += gate(gates, comparison, domains, efforts)
    return found


def _separation(
    gates: GatesConfig, comparison: Comparison, domains: Sequence[str], efforts: Sequence[str]
) -> Iterator[GateResult]:
    if (limit := gates.min_fold) is None:
        return
    for domain in domains:
        folds = _at(comparison, "folds", "student", domain)
        for lower, higher in pairwise(efforts):
            row = next(
                (row for row in folds if (row["from"], row["to"], row["bucket"]) == (lower, higher, "all")), None
            )
            if row is None:
                raise _lacks(f"folds.student.{domain} from {lower} to {higher}")
            fold = _at(row, "fold")
            yield _result(
                f"min_fold.{domain}.{higher}",
                _at(fold, "low"),
                limit,
                lambda value: value > limit,
                f"mean tokens {higher} / {lower} {_text(fold['value'])}; lower end of its 95% interval above {limit:g}",
            )


def _accuracy_order(
    gates: GatesConfig, comparison: Comparison, domains: Sequence[str], efforts: Sequence[str]
) -> Iterator[GateResult]:
    if (limit := gates.max_accuracy_drop_points) is None:
        return
    for domain in domains:
        for lower, higher in pairwise(efforts):
            before, after = (_at(_student(comparison, domain, e), "accuracy", "value") for e in (lower, higher))
            drop = None if before is None or after is None else 100 * (before - after)
            yield _result(
                f"max_accuracy_drop_points.{domain}.{higher}",
                drop,
                limit,
                lambda value: value <= limit + SLACK,
                f"accuracy {_text(before)} at {lower}, {_text(after)} at {higher}; may fall by {limit:g} points",
            )


def _near_teacher(
    gates: GatesConfig, comparison: Comparison, domains: Sequence[str], efforts: Sequence[str]
) -> Iterator[GateResult]:
    if (limit := gates.student_within_points) is None:
        return
    for cell in _cells(domains, efforts):
        points = _at(comparison, "recovery", cell, "student_minus_teacher_points", "value")
        yield _result(
            f"student_within_points.{cell}",
            points,
            -limit,
            lambda value: value >= -limit - SLACK,
            f"accuracy of the student minus that of its teacher, in points; at least {-limit:g}",
        )


def _token_band(
    gates: GatesConfig, comparison: Comparison, domains: Sequence[str], efforts: Sequence[str]
) -> Iterator[GateResult]:
    if gates.token_ratio is None:
        return
    low, high = gates.token_ratio
    for cell in _cells(domains, efforts):
        yield _result(
            f"token_ratio.{cell}",
            _at(comparison, "recovery", cell, "token_ratio", "value"),
            (low, high),
            lambda value: low - SLACK <= value <= high + SLACK,
            f"mean tokens student / teacher; from {low:g} to {high:g}",
        )


def _truncation(
    gates: GatesConfig, comparison: Comparison, domains: Sequence[str], efforts: Sequence[str]
) -> Iterator[GateResult]:
    if (limit := gates.max_truncated_share) is None:
        return
    for domain in domains:
        for effort in efforts:
            yield _result(
                f"max_truncated_share.{domain}.{effort}",
                _at(_student(comparison, domain, effort), "truncated_share"),
                limit,
                lambda value: value <= limit + SLACK,
                f"share of the student's responses cut by the cap; at most {limit:g}",
            )


def _result(
    name: str,
    value: float | None,
    limit: float | tuple[float, float],
    holds: Callable[[float], bool],
    detail: str,
) -> GateResult:
    if value is None or not math.isfinite(value):
        return GateResult(name, False, None, limit, f"not measured: {detail}")
    return GateResult(name, holds(value), float(value), limit, detail)


def _cells(domains: Sequence[str], efforts: Sequence[str]) -> list[str]:
    return [f"{domain}.{effort}" for domain in domains for effort in efforts]


def _student(comparison: Comparison, domain: str, effort: str) -> Mapping[str, Any]:
    cell: Mapping[str, Any] = _at(comparison, "subjects", "student", f"{domain}.{effort}")
    return cell


def _at(values: Any, *path: str) -> Any:
    for depth, part in enumerate(path):
        if not isinstance(values, Mapping) or part not in values:
            raise _lacks(".".join(path[: depth + 1]))
        values = values[part]
    return values


def _lacks(what: str) -> DataError:
    return DataError(
        "comparison.json", got=f"no {what}", expected="every domain and effort evaluated", fix="run the summary again"
    )


def _text(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"

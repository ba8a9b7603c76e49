"""What one cell's responses say (methods, section 10). Unscored rows leave every mean; a token is never a word.

Axes: N rows, M measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stages.core.errors import DataError
from stages.evaluate.bootstrap import Interval, Sums, means, sums_by_problem
from stages.evaluate.rows import BUCKETS, Row

MEASURES = ("correct", "tokens", "total_tokens")
"""Columns of a cell's Sums."""
ACCURACY, TOKENS, TOTAL_TOKENS = range(len(MEASURES))
LONG_FACTOR = 3
"""A response is long above this multiple of its cell's median: a cell with many is two behaviours under one name."""
LENGTH_TOLERANCE = 500
"""Tokens off a stated target that count as a miss."""
MILLION = 1e6

Cell = dict[str, Any]
"""JSON form of a cell's numbers; see ``cell_metrics``."""


def scored(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["reward"] is not None]


def sums_of(rows: Sequence[Row]) -> Sums:
    """MEASURES of the scored rows, problem by problem.

    Raises:
        DataError: no row was scored.
    """
    kept = scored(rows)
    if not kept:
        what = f"evaluation of {rows[0]['cell']}" if rows else "evaluation"
        raise DataError(what, got=f"{len(rows)} rows, none of them scored", expected="at least one scored response")
    values_NM = np.array([[row["correct"], row["tokens"], row["total_tokens"]] for row in kept], dtype=np.float64)
    return sums_by_problem([row["problem"] for row in kept], values_NM)


def cell_metrics(rows: Sequence[Row], bootstrap: int, seed: int) -> Cell:
    """The numbers of one cell, overall and for each difficulty bucket that holds a scored row.

    Args:
        rows: of one cell; those without a difficulty count in the overall numbers alone.
        bootstrap: resamples of the problems behind each 95% interval.
        seed: decides the resamples.

    Returns:
        ``accuracy`` {value, low, high}; ``tokens`` {mean, low, high, median, p90, p99}; ``answer_tokens_mean``;
        ``total_tokens_mean``; shares ``long_share``, ``truncated_share``, ``unscored_share``, ``reasoning_share``
        (counted / all generated tokens); ``problems``; ``responses`` (unscored ones too);
        ``correct_per_million_tokens`` (generated tokens; None where nothing was generated); ``buckets``.

    Raises:
        DataError: no row was scored.
    """
    buckets = {}
    for bucket in BUCKETS:
        inside = [row for row in rows if row["difficulty"] == bucket]
        if scored(inside):
            buckets[bucket] = _numbers(inside, bootstrap, seed)
    return {**_numbers(rows, bootstrap, seed), "buckets": buckets}


def _numbers(rows: Sequence[Row], bootstrap: int, seed: int) -> Cell:
    sums = sums_of(rows)
    kept = scored(rows)
    intervals = means(sums, bootstrap, seed)
    tokens_N = np.array([row["tokens"] for row in kept], dtype=np.float64)
    median, p90, p99 = (float(part) for part in np.percentile(tokens_N, (50, 90, 99)))
    correct, tokens, total = (float(part) for part in sums.sums_PM.sum(axis=0))
    mean: Interval = intervals[TOKENS]
    return {
        "accuracy": asdict(intervals[ACCURACY]),
        "tokens": {"mean": mean.value, "low": mean.low, "high": mean.high, "median": median, "p90": p90, "p99": p99},
        "answer_tokens_mean": float(np.mean([row["answer_tokens"] for row in kept])),
        "total_tokens_mean": total / len(kept),
        "long_share": float(np.mean(tokens_N > LONG_FACTOR * median)),
        "truncated_share": float(np.mean([row["truncated"] for row in kept])),
        "unscored_share": 1 - len(kept) / len(rows),
        "reasoning_share": tokens / total if total else None,
        "problems": len(sums.problems_P),
        "responses": len(rows),
        "correct_per_million_tokens": correct_per_million(correct, total),
    }


def correct_per_million(correct: float, tokens: float) -> float | None:
    """Correct answers per million generated tokens; None without tokens.

    Args:
        correct: correct answers, or accuracy.
        tokens: tokens generated for them, or mean tokens a response.
    """
    return MILLION * correct / tokens if tokens > 0 else None


@dataclass(frozen=True, slots=True)
class TierPoint:
    """Where one tier stands."""

    accuracy: float
    tokens: float
    """Generated tokens of a response."""


def best_feasible(tiers: Mapping[str, TierPoint], cap_tokens: float) -> str | None:
    """The most accurate tier whose responses fit under the cap, the shorter one of equals; None: none fits.

    A tier that does not fit counts as nothing: a part of a response is no part of an answer.
    """
    fitting = {effort: point for effort, point in tiers.items() if point.tokens <= cap_tokens}
    return max(fitting, key=lambda effort: (fitting[effort].accuracy, -fitting[effort].tokens), default=None)


@dataclass(frozen=True, slots=True)
class LengthError:
    """How closely responses kept to stated lengths (LCPO)."""

    relative_error_of_mean: float
    """(mean length - mean target) / mean target, signed."""
    mean_absolute_deviation: float
    """Tokens."""
    off_share: float
    """Share more than LENGTH_TOLERANCE tokens off."""


def length_error(targets_N: Sequence[float], tokens_N: Sequence[float]) -> LengthError:
    """Raises:
    DataError: no responses, unequal numbers of targets and lengths, or a target that is not positive.
    """
    if not targets_N or len(targets_N) != len(tokens_N) or min(targets_N) <= 0:
        raise DataError(
            "length targets",
            got=f"{len(targets_N)} targets for {len(tokens_N)} responses",
            expected="one positive target a response",
        )
    targets, tokens = np.asarray(targets_N, dtype=np.float64), np.asarray(tokens_N, dtype=np.float64)
    off = np.abs(tokens - targets)
    return LengthError(
        relative_error_of_mean=float(tokens.mean() / targets.mean() - 1),
        mean_absolute_deviation=float(off.mean()),
        off_share=float(np.mean(off > LENGTH_TOLERANCE)),
    )

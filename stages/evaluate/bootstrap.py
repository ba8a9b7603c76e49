"""Seeded bootstrap over problems: 95% percentile intervals of means, of their ratios and of their differences.

Problems are resampled, never rows: responses to one problem are not independent. Where two cells answered the same
problem, one draw moves both (paired); problems that only one of them answered are a stratum of their own, so cells
without a common problem are resampled independently.

Axes: N rows, P problems, M measures, B resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stages.core.keys import derive_seed
from stages.core.records import FloatArray

LEVELS = (0.025, 0.975)
DRAWS_AT_ONCE = 4_000_000
"""Drawn problem indices held at a time: about 64 MB."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95% interval; None where it has no finite value, e.g. a ratio to a mean of 0."""

    value: float | None
    low: float | None
    high: float | None

    def scaled(self, factor: float) -> Interval:
        """The same number in another unit."""
        return Interval(*(None if part is None else part * factor for part in (self.value, self.low, self.high)))


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What a mean over rows needs of each problem."""

    problems_P: npt.NDArray[np.str_]
    """Ids, sorted, each once."""
    counts_P: FloatArray
    """Rows, >= 1."""
    sums_PM: FloatArray
    """Sum of each measure over the problem's rows."""

    @property
    def means_M(self) -> FloatArray:
        """Mean of each measure over all rows."""
        means: FloatArray = self.sums_PM.sum(axis=0) / self.counts_P.sum()
        return means


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two cells beside each other, measure by measure."""

    ratios: list[Interval]
    """Mean of the second / mean of the first."""
    differences: list[Interval]
    """Mean of the second - mean of the first."""


def sums_by_problem(problems_N: Sequence[str], measures_NM: FloatArray) -> Sums:
    """Add up rows problem by problem.

    Raises:
        ValueError: no rows, or as many problems as measures do not have rows.
    """
    if len(problems_N) == 0 or len(problems_N) != len(measures_NM):
        raise ValueError(f"{len(problems_N)} problem ids for {len(measures_NM)} rows of measures")
    ids_P, index_N = np.unique(np.asarray(problems_N, dtype=np.str_), return_inverse=True)
    sums_PM = np.zeros((len(ids_P), measures_NM.shape[1]))
    np.add.at(sums_PM, index_N, measures_NM)
    return Sums(ids_P, np.bincount(index_N).astype(np.float64), sums_PM)


def means(cell: Sums, resamples: int, seed: int) -> list[Interval]:
    """The mean of each measure over all rows of a cell."""
    (draws_BM,) = resampled_means([cell], resamples, seed)
    return _intervals(cell.means_M, draws_BM)


def contrast(first: Sums, second: Sums, resamples: int, seed: int) -> Contrast:
    """Ratio and difference of the two cells' means, for each measure."""
    draws = resampled_means([first, second], resamples, seed)
    return Contrast(
        ratios=_intervals(_ratio(second.means_M, first.means_M), _ratio(draws[1], draws[0])),
        differences=_intervals(second.means_M - first.means_M, draws[1] - draws[0]),
    )


def resampled_means(cells: Sequence[Sums], resamples: int, seed: int) -> list[FloatArray]:
    """(B, M) means of each cell under the same resamples of the problems.

    Args:
        seed: decides every draw; the same problems, resamples and seed give the same draws.
    """
    totals = [np.zeros((resamples, 1 + cell.sums_PM.shape[1])) for cell in cells]
    for number, (problems, members) in enumerate(_strata(cells)):
        rng = np.random.default_rng(derive_seed(seed, "bootstrap", number))
        size = len(problems)
        parts = []
        for member in members:
            cell, at = cells[member], np.searchsorted(cells[member].problems_P, problems)
            parts.append(np.column_stack([cell.counts_P[at], cell.sums_PM[at]]))
        block = max(1, DRAWS_AT_ONCE // size)
        for start in range(0, resamples, block):
            rows = min(block, resamples - start)
            times_BP = _times_drawn(rng, rows, size)
            for member, part in zip(members, parts, strict=True):
                totals[member][start : start + rows] += times_BP @ part
    return [total[:, 1:] / total[:, :1] for total in totals]


def _strata(cells: Sequence[Sums]) -> list[tuple[npt.NDArray[np.str_], list[int]]]:
    """Problems by which of the cells answered them, with the indices of those cells."""
    everything = np.unique(np.concatenate([cell.problems_P for cell in cells]))
    answered = np.stack([np.isin(everything, cell.problems_P) for cell in cells])
    patterns, which = np.unique(answered, axis=1, return_inverse=True)
    return [
        (everything[which.ravel() == number], [int(member) for member in np.flatnonzero(pattern)])
        for number, pattern in enumerate(patterns.T)
    ]


def _times_drawn(rng: np.random.Generator, resamples: int, size: int) -> FloatArray:
    """(B, P): how often each resample of ``size`` problems drew each of them."""
    flat = rng.integers(0, size, (resamples, size)) + size * np.arange(resamples)[:, None]
    return np.bincount(flat.ravel(), minlength=resamples * size).reshape(resamples, size).astype(np.float64)


def _ratio(over: FloatArray, under: FloatArray) -> FloatArray:
    """over / under; infinite where under is 0."""
    ratio: FloatArray = np.divide(over, under, out=np.full_like(over, np.inf), where=under != 0)
    return ratio


def _intervals(values_M: FloatArray, draws_BM: FloatArray) -> list[Interval]:
    # An order statistic, not an interpolation, so that one infinite ratio among the draws cannot make a NaN.
    low_M, high_M = np.quantile(draws_BM, LEVELS, axis=0, method="inverted_cdf")
    return [
        Interval(*(float(part) if np.isfinite(part) else None for part in parts))
        for parts in zip(values_M, low_M, high_M, strict=True)
    ]

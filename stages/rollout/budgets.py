"""The budget table (methods, section 3): estimated once from cold-start rollouts, then frozen.

b0 is stored raw: neither tau nor the cap enters, so changing a tier never changes a budget.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.core.errors import DataError, StageFailed
from stages.core.records import Budget, Problem, TokenCounts
from stages.rewards.group import exceeds

WARN_SHARE = 0.10
FAIL_SHARE = 0.50


class CountedRollout(Protocol):
    """What the table needs of a rollout."""

    @property
    def problem(self) -> Problem: ...
    @property
    def counts(self) -> TokenCounts: ...
    @property
    def reward(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class _Draft:
    """A row before the fallback: ``b0`` is None where nothing was correct."""

    row: Budget
    b0: float | None


def estimate(
    rollouts: Sequence[CountedRollout], *, percentile: float, floor_tokens: float, success_threshold: float
) -> list[Budget]:
    """One budget a problem, in order of first appearance.

    Only correct, finished rollouts set b0; unscored ones count nowhere. Where a problem has none, the median of the
    budgets of its bucket in its domain stands in, else of its domain.

    Args:
        percentile: rho in [0, 100], linear interpolation.
        floor_tokens: no b0 falls below this.
        success_threshold: correct at this raw reward or above.

    Raises:
        StageFailed: no rollout of a whole domain is correct.
    """
    by_problem: dict[tuple[str, str], list[CountedRollout]] = {}
    for rollout in rollouts:
        by_problem.setdefault((rollout.problem.domain, rollout.problem.id), []).append(rollout)
    drafts = [_draft(found, percentile, floor_tokens, success_threshold) for found in by_problem.values()]
    by_bucket: dict[tuple[str, str], list[float]] = {}
    by_domain: dict[str, list[float]] = {}
    for draft in drafts:
        if draft.b0 is not None:
            by_bucket.setdefault((draft.row.domain, draft.row.bucket), []).append(draft.b0)
            by_domain.setdefault(draft.row.domain, []).append(draft.b0)
    return [_filled(draft, by_bucket, by_domain) for draft in drafts]


def _draft(rollouts: Sequence[CountedRollout], percentile: float, floor_tokens: float, threshold: float) -> _Draft:
    problem = rollouts[0].problem
    scored = [(item.counts, item.reward) for item in rollouts if item.reward is not None]
    lengths = [counts.counted for counts, reward in scored if reward >= threshold and not counts.truncated]
    b0 = max(floor_tokens, float(np.percentile(lengths, percentile))) if lengths else None
    seen = [counts for counts, _ in scored] or [item.counts for item in rollouts]
    row = Budget(
        problem_id=problem.id,
        domain=problem.domain,
        b0_tokens=0.0 if b0 is None else b0,
        samples=len(scored),
        correct=len(lengths),
        pass_rate=len(lengths) / len(scored) if scored else 0.0,
        bucket=problem.difficulty or difficulty_third(len(lengths), len(scored)),
        method=f"p{percentile:g}",
        fallback="none",
        median_correct_tokens=float(statistics.median(lengths)) if lengths else None,
        median_tokens=float(statistics.median(counts.counted for counts in seen)),
        median_answer_tokens=float(statistics.median(counts.answer for counts in seen)),
    )
    return _Draft(row, b0)


def difficulty_third(correct: int, samples: int) -> str:
    """``hard``, ``medium`` or ``easy``: the third of [0, 1] that the pass rate lies in; nothing scored is hard."""
    if 3 * correct < samples or samples == 0:
        return "hard"
    return "medium" if 3 * correct < 2 * samples else "easy"


def _filled(
    draft: _Draft, by_bucket: Mapping[tuple[str, str], Sequence[float]], by_domain: Mapping[str, Sequence[float]]
) -> Budget:
    """The row with its own b0, or with the first fallback that exists."""
    row = draft.row
    if draft.b0 is not None:
        return row
    if of_bucket := by_bucket.get((row.domain, row.bucket)):
        return replace(row, b0_tokens=float(statistics.median(of_bucket)), fallback="bucket")
    if of_domain := by_domain.get(row.domain):
        return replace(row, b0_tokens=float(statistics.median(of_domain)), fallback="domain")
    raise StageFailed(
        f"budgets of {row.domain}",
        got="no correct, finished rollout in the whole domain",
        expected="a cold start that solves some problems",
        fix="train the cold start longer, raise cap_tokens or budget.rollouts, or check the verifier",
    )


def binding_share(budgets: Sequence[Budget], tau: float, cap_tokens: int) -> float:
    """Share of problems whose tau * b0 is above the cap.

    Raises:
        DataError: the table is empty.
    """
    if not budgets:
        raise DataError("budget table", got="no rows", expected="one a problem")
    return float(np.mean(exceeds([tau * budget.b0_tokens for budget in budgets], cap_tokens)))


def check_cap(budgets: Sequence[Budget], tau: float, cap_tokens: int, cell: str) -> str | None:
    """A warning where the cap binds for more than a tenth of the problems, None below.

    Args:
        cell: the ``domain.effort`` that the message names.

    Raises:
        DataError: it binds for more than half of them, so tau would not be what sets the effort.
    """
    share = binding_share(budgets, tau, cap_tokens)
    if share <= WARN_SHARE:
        return None
    got = f"cap_tokens {cap_tokens} below tau {tau:g} x b0 for {share:.0%} of the problems"
    if share > FAIL_SHARE:
        raise DataError(cell, got=got, expected=f"at most {FAIL_SHARE:.0%}", fix="raise cap_tokens or lower tau")
    return f"{cell}: {got}; raise cap_tokens or lower tau"


def write_parquet(path: Path, budgets: Sequence[Budget], provenance: Mapping[str, str] | None = None) -> None:
    """Write the table aside and rename it.

    Args:
        provenance: kept as the file's metadata, e.g. the digests of tokenizer and checkpoint.
    """
    table = pa.Table.from_pylist([asdict(budget) for budget in budgets], schema=_SCHEMA)
    aside = path.with_name(f".{path.name}.tmp")
    pq.write_table(table.replace_schema_metadata(dict(provenance or {})), aside)
    aside.replace(path)


def read_parquet(path: Path) -> list[Budget]:
    """The rows of a budget table.

    Raises:
        DataError: no file, not Parquet, or another table's columns.
    """
    try:
        table = pq.read_table(path)
        return [Budget(**row) for row in table.to_pylist()]
    except (OSError, pa.ArrowException, TypeError) as error:
        raise DataError(
            str(path), got=str(error), expected="a budget table", fix="run the budget stage again"
        ) from None


_TYPES: Mapping[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "float | None": pa.float64(),
}
_SCHEMA = pa.schema([(field.name, _TYPES[str(field.type)]) for field in fields(Budget)])

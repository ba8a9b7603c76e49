"""The rows of an evaluation, one a response, and the difficulty of problems whose data states none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from stages.core.errors import DataError
from stages.core.files import read_jsonl

ROWS = "rows.jsonl"
BUCKETS = ("easy", "medium", "hard")


class Row(TypedDict):
    """One response, as ``rows.jsonl`` has it."""

    cell: str
    """``domain.effort``, or ``domain`` where no effort message was rendered."""
    domain: str
    effort: str | None
    problem: str
    difficulty: str | None
    """One of BUCKETS where the data says so."""
    sample: int
    tokens: int
    """T: counted tokens."""
    answer_tokens: int
    total_tokens: int
    """T + answer tokens."""
    correct: bool
    reward: float | None
    """None: unscored; the row leaves every mean."""
    truncated: bool


def read_rows(folder: Path) -> list[Row]:
    """The rows of one evaluation artifact.

    Raises:
        DataError: the folder holds none.
    """
    rows = [cast(Row, record) for record in read_jsonl(folder / ROWS)]
    if not rows:
        raise DataError(str(folder / ROWS), got="no rows", expected="one a response", fix="run this evaluation again")
    return rows


def by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each cell, in order of first appearance."""
    cells: dict[str, list[Row]] = {}
    for row in rows:
        cells.setdefault(row["cell"], []).append(row)
    return cells


def difficulty_thirds(cold_start: Iterable[Row]) -> dict[str, str]:
    """Bucket of each problem without a stated difficulty: thirds by rank of the cold start's pass rate.

    The third with the lowest pass rates is hard; equal rates keep the order of the rows. A problem with pass rate 0,
    or of which nothing was scored, is hard even where that makes the hard bucket larger than a third; the rest is
    then halved.
    """
    verdicts: dict[str, list[bool]] = {}
    for row in cold_start:
        if row["difficulty"] is None:
            scored = verdicts.setdefault(row["problem"], [])
            if row["reward"] is not None:
                scored.append(row["correct"])
    rates = {problem: sum(scored) / len(scored) if scored else 0.0 for problem, scored in verdicts.items()}
    ranked = sorted(rates, key=rates.__getitem__)
    hard = max(math.ceil(len(ranked) / 3), sum(rate == 0 for rate in rates.values()))
    medium = math.ceil((len(ranked) - hard) / 2)
    return {
        problem: "hard" if rank < hard else "medium" if rank < hard + medium else "easy"
        for rank, problem in enumerate(ranked)
    }


def with_difficulty(rows: Sequence[Row], thirds: Mapping[str, str]) -> list[Row]:
    """The rows, each with a bucket: its own, else that of its problem in ``thirds``.

    Raises:
        DataError: a problem has neither, so the cold start was measured on other problems.
    """
    filled = []
    for row in rows:
        bucket = row["difficulty"] or thirds.get(row["problem"])
        if bucket not in BUCKETS:
            raise DataError(
                f"{row['cell']}: problem {row['problem']}",
                got=f"difficulty {bucket}",
                expected=f"one of {', '.join(BUCKETS)}, or a problem that the cold start was evaluated on too",
                fix="evaluate every checkpoint on the same held-out problems",
            )
        filled.append(Row(**{**row, "difficulty": bucket}))
    return filled

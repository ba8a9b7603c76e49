"""All checkpoints side by side: ``comparison.json`` (methods, section 10).

    version, title, domains, efforts (ascending), settings
    subjects        cold_start {domain: Cell}, specialists and student {domain.effort: Cell}
    folds, gains    by specialists | student, then domain: one record a pair of tiers and bucket
    recovery        by domain.effort: the student beside its teacher
    operating_point by specialists | student, then domain: what to route to
    checks          see stages.evaluate.checks

An interval is {value, low, high}; points are hundredths of accuracy. The bucket ``all`` holds every problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from stages.core.errors import DataError
from stages.core.keys import derive_seed
from stages.evaluate.bootstrap import contrast
from stages.evaluate.checks import checks
from stages.evaluate.config import SummaryJob
from stages.evaluate.metrics import (
    ACCURACY,
    TOKENS,
    TOTAL_TOKENS,
    Cell,
    TierPoint,
    best_feasible,
    cell_metrics,
    scored,
    sums_of,
)
from stages.evaluate.rows import BUCKETS, Row, by_cell, difficulty_thirds, with_difficulty

VERSION = 1
ALL = "all"
POINTS = 100
MIN_GAIN_POINTS = 2
"""Recovery is a share of the teacher's gain; of a smaller gain it would be a share of noise."""
COLD_START, SPECIALISTS, STUDENT = "cold_start", "specialists", "student"

Cells = Mapping[str, Sequence[Row]]
"""Rows by cell name, every row with a difficulty."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """The rows to compare."""

    cold_start: Cells
    """By domain."""
    specialists: Cells
    """By ``domain.effort``."""
    student: Cells
    """By ``domain.effort``."""

    def tiers(self, subject: str) -> Cells:
        return self.specialists if subject == SPECIALISTS else self.student


def subjects_of(evaluations: Mapping[str, Sequence[Row]], job: SummaryJob) -> Subjects:
    """Sort rows by subject and cell and give every problem a difficulty.

    Args:
        evaluations: rows by ``cold_start``, ``student`` and each specialist's ``domain.effort``.

    Raises:
        DataError: a subject, or a cell of it, is missing.
    """
    cold_cells = _cells(evaluations, COLD_START, job.domains)
    thirds = {domain: difficulty_thirds(cold_cells[domain]) for domain in job.domains}
    names = [f"{domain}.{effort}" for domain in job.domains for effort in job.efforts]
    student = _cells(evaluations, STUDENT, names)
    specialists = {name: _cells(evaluations, name, [name])[name] for name in names}

    def fill(cells: Cells) -> Cells:
        return {name: with_difficulty(rows, thirds[rows[0]["domain"]]) for name, rows in cells.items()}

    return Subjects(fill(cold_cells), fill(specialists), fill(student))


def _cells(evaluations: Mapping[str, Sequence[Row]], subject: str, names: Sequence[str]) -> Cells:
    cells = by_cell(evaluations.get(subject, ()))
    if missing := [name for name in names if name not in cells]:
        raise DataError(
            f"evaluation of {subject}",
            got=f"no rows of {', '.join(missing)}",
            expected=f"rows of {', '.join(names)}",
            fix="run this evaluation again",
        )
    return {name: cells[name] for name in names}


def compare(subjects: Subjects, job: SummaryJob, *, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that ``comparison.json`` holds.

    Args:
        seed: decides the resamples behind the intervals.
        settings: effort setting, prompt form, caps and whatever else the numbers hold for, as the caller knows it.
    """
    comparer = _Comparer(subjects, job, seed)
    comparison: dict[str, Any] = {
        "version": VERSION,
        "title": job.title,
        "domains": list(job.domains),
        "efforts": list(job.efforts),
        "settings": dict(settings),
        "subjects": {
            COLD_START: comparer.metrics(subjects.cold_start),
            SPECIALISTS: comparer.metrics(subjects.specialists),
            STUDENT: comparer.metrics(subjects.student),
        },
    }
    pairs = {subject: comparer.pairs(subject) for subject in (SPECIALISTS, STUDENT)}
    for kind, names in (("folds", ("fold", "fold_total")), ("gains", ("points",))):
        comparison[kind] = {
            subject: {
                domain: [{name: record[name] for name in ("from", "to", "bucket", *names)} for record in records]
                for domain, records in of_domain.items()
            }
            for subject, of_domain in pairs.items()
        }
    comparison["recovery"] = comparer.recovery(comparison["subjects"])
    comparison["operating_point"] = {
        subject: {domain: comparer.operating_point(cells, domain) for domain in job.domains}
        for subject, cells in comparison["subjects"].items()
        if subject != COLD_START
    }
    comparison["checks"] = [asdict(check) for check in checks(comparison)]
    return comparison


@dataclass(frozen=True, slots=True)
class _Comparer:
    subjects: Subjects
    job: SummaryJob
    seed: int

    def metrics(self, cells: Cells) -> dict[str, Cell]:
        return {
            name: cell_metrics(rows, self.job.bootstrap, derive_seed(self.seed, rows[0]["domain"]))
            for name, rows in cells.items()
        }

    def pairs(self, subject: str) -> dict[str, list[dict[str, Any]]]:
        """Folds and gains of every domain: adjacent tiers and lowest to highest, all problems and each bucket."""
        efforts = self.job.efforts
        steps = list(pairwise(efforts))
        if len(efforts) > 2:
            steps.append((efforts[0], efforts[-1]))
        cells = self.subjects.tiers(subject)
        return {
            domain: [
                record
                for low, high in steps
                for bucket in (ALL, *BUCKETS)
                if (record := self._pair(cells, domain, low, high, bucket)) is not None
            ]
            for domain in self.job.domains
        }

    def _pair(self, cells: Cells, domain: str, low: str, high: str, bucket: str) -> dict[str, Any] | None:
        """One pair of tiers in one bucket; None where either has no scored response there."""
        first, second = (_in_bucket(cells[f"{domain}.{effort}"], bucket) for effort in (low, high))
        if not scored(first) or not scored(second):
            return None
        found = contrast(sums_of(first), sums_of(second), self.job.bootstrap, derive_seed(self.seed, domain))
        return {
            "from": low,
            "to": high,
            "bucket": bucket,
            "fold": asdict(found.ratios[TOKENS]),
            "fold_total": asdict(found.ratios[TOTAL_TOKENS]),
            "points": asdict(found.differences[ACCURACY].scaled(POINTS)),
        }

    def recovery(self, metrics: Mapping[str, Mapping[str, Cell]]) -> dict[str, dict[str, Any]]:
        """The student beside its teacher, cell by cell."""
        records = {}
        for name, teacher_rows in self.subjects.specialists.items():
            domain = teacher_rows[0]["domain"]
            sums = sums_of(teacher_rows), sums_of(self.subjects.student[name])
            found = contrast(*sums, self.job.bootstrap, derive_seed(self.seed, domain))
            cold, teacher, student = (
                float(metrics[subject][cell]["accuracy"]["value"])
                for subject, cell in ((COLD_START, domain), (SPECIALISTS, name), (STUDENT, name))
            )
            gain_points = POINTS * (teacher - cold)
            # Rounded, so that a gain of exactly 2 points is not lost to the last bit of .72 - .70.
            enough = round(gain_points, 9) >= MIN_GAIN_POINTS
            records[name] = {
                "teacher_accuracy": teacher,
                "student_accuracy": student,
                "student_minus_teacher_points": asdict(found.differences[ACCURACY].scaled(POINTS)),
                "teacher_gain_points": gain_points,
                "recovery": (student - cold) / (teacher - cold) if enough else None,
                "token_ratio": asdict(found.ratios[TOKENS]),
            }
        return records

    def operating_point(self, cells: Mapping[str, Cell], domain: str) -> dict[str, Any]:
        """What each tier costs and buys, and the most accurate tier whose mean response fits under the cap."""
        tiers = {effort: cells[f"{domain}.{effort}"] for effort in self.job.efforts}
        points = {
            effort: TierPoint(cell["accuracy"]["value"], cell["total_tokens_mean"]) for effort, cell in tiers.items()
        }
        return {
            "cap_tokens": self.job.caps[domain],
            "best_feasible": best_feasible(points, self.job.caps[domain]),
            "tiers": [
                {
                    "effort": effort,
                    "accuracy": cell["accuracy"]["value"],
                    "mean_tokens": cell["tokens"]["mean"],
                    "mean_total_tokens": cell["total_tokens_mean"],
                    "correct_per_million_tokens": cell["correct_per_million_tokens"],
                }
                for effort, cell in tiers.items()
            ],
        }


def _in_bucket(rows: Sequence[Row], bucket: str) -> Sequence[Row]:
    return rows if bucket == ALL else [row for row in rows if row["difficulty"] == bucket]

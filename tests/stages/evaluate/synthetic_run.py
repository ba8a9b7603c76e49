"""Invented evaluations, training logs and budgets with the shape of a run whose knob moves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stages.core.files import append_jsonl
from stages.core.keys import derive_seed
from stages.core.records import Budget
from stages.evaluate.config import SummaryJob
from stages.evaluate.rows import ROWS, Row
from stages.rollout.budgets import write_parquet

DOMAINS = ("general", "code", "agent")
EFFORTS = ("low", "high", "max")
LENGTH = {"low": 11.0, "high": 21.0, "max": 41.0}
ACCURACY = {"low": 0.62, "high": 0.86, "max": 0.97}
EASE = {"easy": 0.12, "medium": 0.0, "hard": -0.16}
CAP = 110


def job(domains: tuple[str, ...] = DOMAINS, efforts: tuple[str, ...] = EFFORTS, bootstrap: int = 200) -> SummaryJob:
    return SummaryJob(
        domains=domains,
        efforts=efforts,
        tau={domain: dict(zip(efforts, (0.55, 1.6, 10.0), strict=False)) for domain in domains},
        caps=dict.fromkeys(domains, CAP),
        bootstrap=bootstrap,
        student="distill",
        title="synthetic",
    )


def row(cell: str, problem: str, tokens: int, correct: bool, **changes: object) -> Row:
    """A scored row of a medium problem with a two-token answer."""
    domain, _, effort = cell.partition(".")
    values = {
        "cell": cell,
        "domain": domain,
        "effort": effort or None,
        "problem": problem,
        "difficulty": "medium",
        "sample": 0,
        "tokens": tokens,
        "answer_tokens": 2,
        "total_tokens": tokens + 2,
        "correct": correct,
        "reward": float(correct),
        "truncated": False,
    }
    return Row(**{**values, **changes})  # type: ignore[typeddict-item]


def cell_rows(subject: str, domain: str, effort: str | None, problems: int) -> list[Row]:
    """Responses whose length and accuracy follow the effort and the difficulty; without effort a mixture."""
    rng = np.random.default_rng(derive_seed("synthetic", subject, domain, effort))
    rows = []
    for index in range(problems):
        bucket = ("easy", "medium", "hard")[index % 3]
        tier = effort or EFFORTS[int(rng.integers(3))]
        scale = 1.2 if domain == "code" else 1.0
        tokens = int(min(CAP, max(1, rng.normal(LENGTH[tier] * scale, 0.15 * LENGTH[tier] * scale))))
        chance = ACCURACY[tier] + (EASE[bucket] if tier != "max" else EASE[bucket] / 6)
        correct = bool(rng.random() < chance)
        name = f"{domain}.{effort}" if effort else domain
        rows.append(row(name, f"{domain}-{index}", tokens, correct, difficulty=bucket))
    return rows


def evaluations(
    domains: tuple[str, ...] = DOMAINS, efforts: tuple[str, ...] = EFFORTS, problems: int = 120
) -> dict[str, list[Row]]:
    """Rows by subject, as the summary stage reads them."""
    cells = [(domain, effort) for domain in domains for effort in efforts]
    return {
        "cold_start": [item for domain in domains for item in cell_rows("cold_start", domain, None, problems)],
        **{f"{d}.{e}": cell_rows("specialist", d, e, problems) for d, e in cells},
        "student": [item for d, e in cells for item in cell_rows("student", d, e, problems)],
    }


def budgets(domain: str, problems: int = 96) -> list[Budget]:
    rng = np.random.default_rng(derive_seed("synthetic", "budget", domain))
    buckets = ("easy", "medium", "hard")
    return [
        Budget(
            problem_id=f"{domain}-t{index}",
            domain=domain,
            b0_tokens=float(12 + 5 * (index % 3) + rng.integers(0, 9)),
            samples=12,
            correct=10 - 3 * (index % 3),
            pass_rate=(10 - 3 * (index % 3)) / 12,
            bucket=buckets[index % 3],
            method="p50",
            fallback="none" if index else "bucket",
            median_correct_tokens=20.0,
            median_tokens=21.0,
            median_answer_tokens=2.0,
        )
        for index in range(problems)
    ]


def write_training(folder: Path, effort: str, steps: int = 30) -> None:
    """A log in which tokens move to the tier's length and groups die as the reward settles."""
    rng = np.random.default_rng(derive_seed("synthetic", "training", folder.name))
    (folder / "logs").mkdir(parents=True)
    for step in range(1, steps + 1):
        done = step / steps
        metrics = {
            "reward": min(1.0, 0.75 + (ACCURACY[effort] - 0.75) * done + float(rng.normal(0, 0.03))),
            "tokens": 26 + (LENGTH[effort] - 26) * done + float(rng.normal(0, 0.8)),
            "dead_group_share": min(1.0, 0.15 + 0.5 * done + float(rng.uniform(0, 0.1))),
            "unreachable_share": max(
                0.0, (0.5 if effort == "low" else 0.05) * (1 - done) + float(rng.uniform(0, 0.04))
            ),
        }
        append_jsonl(folder / "logs" / "metrics.jsonl", {"t": 0.0, "step": step, "total": steps, "metrics": metrics})


def write_inputs(root: Path, problems: int = 120, *, training: bool = True, budget: bool = True) -> dict[str, Path]:
    """Artifact folders by input name, as the plan hands them to the summary stage."""
    inputs = {}
    for subject, rows in evaluations(problems=problems).items():
        folder = inputs[f"evaluation.{subject}"] = root / f"evaluation.{subject}"
        folder.mkdir(parents=True)
        for item in rows:
            append_jsonl(folder / ROWS, item)
    for domain in DOMAINS if training else ():
        for effort in EFFORTS:
            folder = inputs[f"training.rl.{domain}.{effort}"] = root / f"rl.{domain}.{effort}"
            write_training(folder, effort)
    for domain in DOMAINS if budget else ():
        folder = inputs[f"budget.{domain}"] = root / f"budget.{domain}"
        folder.mkdir()
        write_parquet(folder / "budgets.parquet", budgets(domain))
    return inputs

"""All evaluations into one comparison and one report. Inputs and outputs: see SummaryJob."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.core import manifest
from stages.core.context import StageContext
from stages.core.files import write_json, write_text
from stages.core.ports import Summary
from stages.evaluate.comparison import COLD_START, SPECIALISTS, STUDENT, compare, subjects_of
from stages.evaluate.config import SummaryJob
from stages.evaluate.report.evidence import Evidence, read_curves
from stages.evaluate.report.page import render
from stages.evaluate.rows import read_rows
from stages.rollout.budgets import read_parquet

EVALUATION, TRAINING, BUDGET = "evaluation", "training", "budget"
COMPARISON = "comparison.json"
REPORT = "report.html"


def run(job: SummaryJob, context: StageContext) -> Summary:
    """Write ``comparison.json`` and ``report.html``.

    Raises:
        DataError: an evaluation is missing, has no rows, or was made on other problems.
    """
    evaluations = _named(context.inputs, EVALUATION)
    subjects = subjects_of({name: read_rows(folder) for name, folder in evaluations.items()}, job)
    comparison = compare(subjects, job, seed=context.seed, settings=_settings(job, evaluations))
    evidence = Evidence(
        subjects=subjects,
        curves={node: read_curves(folder) for node, folder in _named(context.inputs, TRAINING).items()},
        budgets={
            domain: read_parquet(folder / "budgets.parquet")
            for domain, folder in _named(context.inputs, BUDGET).items()
        },
    )
    write_json(context.out / COMPARISON, comparison)
    write_text(context.out / REPORT, render(comparison, evidence))
    return headline(comparison)


def headline(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The few numbers that stand for the whole comparison."""
    failed = [check["name"] for check in comparison["checks"] if not check["passed"]]
    numbers: dict[str, Any] = {
        "checks": len(comparison["checks"]),
        "checks_failed": len(failed),
        "failed": failed,
    }
    for name, cell in comparison["subjects"][STUDENT].items():
        numbers[f"{name}.accuracy"] = cell["accuracy"]["value"]
        numbers[f"{name}.tokens"] = cell["tokens"]["mean"]
    return numbers


def _named(inputs: Mapping[str, Path], kind: str) -> dict[str, Path]:
    """The inputs of one kind by the rest of their name, e.g. ``rl.code.low`` of ``training.rl.code.low``."""
    return {name.removeprefix(f"{kind}."): path for name, path in inputs.items() if name.startswith(f"{kind}.")}


def _settings(job: SummaryJob, evaluations: Mapping[str, Path]) -> dict[str, Any]:
    """What the numbers hold for: from the job, and from the manifest of one evaluation of each kind."""
    kinds = {COLD_START: COLD_START, SPECIALISTS: f"{job.domains[0]}.{job.efforts[0]}", STUDENT: STUDENT}
    return {
        "caps": dict(job.caps),
        "tau": {domain: dict(taus) for domain, taus in job.tau.items()},
        "bootstrap": job.bootstrap,
        "consolidation": job.student,
        "evaluations": {kind: _sampling(evaluations[name]) for kind, name in kinds.items()},
    }


def _sampling(folder: Path) -> dict[str, Any]:
    """Effort setting, prompt form and sampling of an evaluation; empty where the folder has no manifest."""
    about = manifest.read(folder)
    if about is None:
        return {}
    config = about["fields"]["config"]
    return {
        "effort": "told" if config["conditioned"] else "not told",
        "prompt form": config["prompt"]["message"]["form"],
        "temperature": config["evaluate"]["temperature"],
        "samples": config["evaluate"]["samples"],
        "problems": config["evaluate"]["problems"],
    }

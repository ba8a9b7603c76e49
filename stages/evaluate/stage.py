"""One checkpoint on its cells: responses to held-out problems. Inputs and outputs: see EvaluateJob."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.core.context import StageContext
from stages.core.files import append_jsonl, write_json
from stages.core.keys import derive_seed
from stages.core.ports import Summary
from stages.core.records import Rollout
from stages.evaluate.config import EvaluateJob
from stages.evaluate.metrics import cell_metrics
from stages.evaluate.rows import Row
from stages.rollout.collect import Collector, asks_for, unscored_share
from stages.rollout.domain import open_domain
from stages.rollout.policy import load_policy
from stages.tasks.config import CellConfig

DRAWS = derive_seed("evaluation")
"""Seed of every evaluation, whatever the run's: all checkpoints meet the same draws, so differences are paired."""

PROBLEMS_AT_ONCE = 256
"""Progress is logged, and a stop is heeded, this often."""


def run(job: EvaluateJob, context: StageContext) -> Summary:
    """Write ``rows.jsonl`` and ``metrics.json``."""
    policy = load_policy(context.inputs["model"], job.prompt, context)
    collector = Collector(policy.sampler, policy.renderer)
    rows_path = context.out / "rows.jsonl"
    rows_path.unlink(missing_ok=True)
    metrics: dict[str, Any] = {}
    for number, cell in enumerate(job.cells):
        rollouts = _respond(job, cell, context, collector)
        rows = [_record(cell, rollout, job.specs[cell.domain].success_threshold) for rollout in rollouts]
        for row in rows:
            append_jsonl(rows_path, row)
        metrics[cell.name] = cell_metrics(rows, job.evaluate.bootstrap, derive_seed("bootstrap", cell.name))
        summary = {"accuracy": metrics[cell.name]["accuracy"]["value"], "tokens": metrics[cell.name]["tokens"]["mean"]}
        context.log.metrics(number + 1, len(job.cells), summary)
    write_json(context.out / "metrics.json", metrics)
    accuracies = [cell["accuracy"]["value"] for cell in metrics.values()]
    tokens = [cell["tokens"]["mean"] for cell in metrics.values()]
    return {"accuracy": float(np.mean(accuracies)), "tokens": float(np.mean(tokens)), "cells": metrics}


def _respond(job: EvaluateJob, cell: CellConfig, context: StageContext, collector: Collector) -> list[Rollout]:
    domain = open_domain(
        cell.domain, job.specs[cell.domain], context.inputs[f"heldout.{cell.domain}"], context.ports.sandbox
    )
    problems = domain.problems[: job.evaluate.problems]
    effort = cell.effort if job.conditioned else None
    rollouts: list[Rollout] = []
    for start in range(0, len(problems), PROBLEMS_AT_ONCE):
        if context.stop.is_set:
            raise context.stop.error()
        part = problems[start : start + PROBLEMS_AT_ONCE]
        asks = asks_for(domain, part, job.evaluate.samples, effort, DRAWS)
        rollouts += collector.collect(asks, temperature=job.evaluate.temperature)
    unscored_share(rollouts, job.evaluate.max_unscored_share)
    domain.verifier.close()
    return rollouts


def _record(cell: CellConfig, rollout: Rollout, threshold: float) -> Row:
    counts = rollout.counts
    return {
        "cell": cell.name,
        "domain": cell.domain,
        "effort": cell.effort,
        "problem": rollout.problem.id,
        "difficulty": rollout.problem.difficulty,
        "sample": rollout.sample,
        "tokens": counts.counted,
        "answer_tokens": counts.answer,
        "total_tokens": counts.counted + counts.answer,
        "correct": rollout.reward is not None and rollout.reward >= threshold,
        "reward": rollout.reward,
        "truncated": counts.truncated,
    }

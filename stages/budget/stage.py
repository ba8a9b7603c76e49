"""Budgets of one domain: K cold-start rollouts a problem, then the table. Inputs and outputs: see BudgetJob."""

from __future__ import annotations

import numpy as np

from stages.budget.config import BudgetJob
from stages.core.context import StageContext
from stages.core.draw import epoch_draw
from stages.core.ports import Summary
from stages.rollout.budgets import estimate, write_parquet
from stages.rollout.collect import Collector, asks_for, unscored_share
from stages.rollout.domain import open_domain
from stages.rollout.policy import load_policy

PROBLEMS_AT_ONCE = 64
"""Progress is logged, and a stop is heeded, this often."""


def run(job: BudgetJob, context: StageContext) -> Summary:
    """Estimate b0 of ``job.budget.problems`` training problems drawn by seed.

    Raises:
        StageFailed: no rollout of the domain is correct, or too many could not be scored.
    """
    config = job.budget
    domain = open_domain(job.domain, job.spec, context.inputs["problems"], context.ports.sandbox)
    policy = load_policy(context.inputs["model"], job.prompt, context)
    collector = Collector(policy.sampler, policy.renderer)
    chosen = epoch_draw(len(domain.problems), 0, min(config.problems, len(domain.problems)), context.seed)
    problems = [domain.problems[index] for index in chosen]
    rollouts = []
    for start in range(0, len(problems), PROBLEMS_AT_ONCE):
        if context.stop.is_set:
            raise context.stop.error()
        part = problems[start : start + PROBLEMS_AT_ONCE]
        asks = asks_for(domain, part, config.rollouts, None, context.seed)
        rollouts += collector.collect(asks, temperature=config.temperature)
        done = min(start + PROBLEMS_AT_ONCE, len(problems))
        rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
        tokens = [rollout.counts.counted for rollout in rollouts]
        context.log.metrics(done, len(problems), {"reward": float(np.mean(rewards)), "tokens": float(np.mean(tokens))})
    share = unscored_share(rollouts, config.max_unscored_share)
    budgets = estimate(
        rollouts,
        percentile=config.percentile,
        floor_tokens=config.floor_tokens,
        success_threshold=job.spec.success_threshold,
    )
    write_parquet(context.out / "budgets.parquet", budgets)
    return {
        "problems": len(budgets),
        "mean_b0_tokens": float(np.mean([budget.b0_tokens for budget in budgets])),
        "pass_rate": float(np.mean([budget.pass_rate for budget in budgets])),
        "fallbacks": sum(budget.fallback != "none" for budget in budgets),
        "unscored_share": share,
    }

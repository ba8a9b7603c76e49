"""One specialist: group-relative RL of one domain at one effort. Inputs and outputs: see RLJob.

Every rank draws and scores its own share of the groups; a group is never split. Only sums cross ranks (live tokens,
live rollouts, groups), so the loss is that of the whole batch whatever the number of ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.core.context import StageContext
from stages.core.draw import epoch_draw
from stages.core.errors import DataError, StageFailed
from stages.core.ports import StepStats, Summary, TrainEngine
from stages.core.records import MODEL, Budget, Problem, Rollout
from stages.rewards.collapse import CollapseState, has_collapsed, observe
from stages.rewards.credit import lr_scale_of
from stages.rewards.gate import gate_warning
from stages.rewards.schedules import length_weight, next_clock, tau_at
from stages.rl.config import RLJob
from stages.rl.shaping import Judged, batch_metrics, judge
from stages.rollout.budgets import check_cap, read_parquet
from stages.rollout.collect import Collector, asks_for, unscored_share
from stages.rollout.domain import Domain, open_domain
from stages.rollout.policy import Policy, policy_of
from stages.tasks.prompts import set_template
from stages.train.batches import TrainRow, engine_batches, target_logprobs
from stages.train.loop import train_loop
from stages.train.model import load_model, load_tokenizer, save_trained
from stages.train.policy_loss import aggregation_weights, clipped_ratio
from stages.train.schedule import lr_scale


def run(job: RLJob, context: StageContext) -> Summary:
    """Train the specialist and write its model folder.

    Raises:
        DataError: the cap binds for more than half of the problems, or the budget table does not fit the problems.
        StageFailed: accuracy collapsed, or too many rollouts could not be scored.
    """
    specialist = Specialist.open(job, context)
    train_loop(context, specialist.engine, job.rl.steps, specialist.step, specialist)
    set_template(specialist.policy.tokenizer, job.prompt)
    save_trained(specialist.engine, specialist.policy.tokenizer, context.out)
    return {
        "accuracy": specialist.last.get("accuracy"),
        "tokens": specialist.last.get("tokens"),
        "tau": job.tau,
        "best_accuracy": specialist.collapse.best,
        "best_step": specialist.collapse.best_step,
    }


@dataclass(slots=True)
class Specialist:
    """The state of one cell's training; ``step`` is what the training loop calls."""

    job: RLJob
    context: StageContext
    domain: Domain
    budgets: Mapping[str, Budget]
    problems: Sequence[Problem]
    """The budgeted training problems."""
    policy: Policy
    engine: TrainEngine
    clock: int = 0
    """Where the tau schedule stands; held while too many groups are unreachable."""
    collapse: CollapseState = dataclasses.field(default_factory=CollapseState)
    last: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def open(cls, job: RLJob, context: StageContext) -> Specialist:
        domain = open_domain(job.domain, job.spec, context.inputs["problems"], context.ports.sandbox)
        budgets = {budget.problem_id: budget for budget in read_parquet(context.inputs["budget"] / "budgets.parquet")}
        problems = [problem for problem in domain.problems if problem.id in budgets]
        if len(problems) != len(budgets):
            raise DataError(
                str(context.inputs["budget"]),
                got=f"{len(budgets)} budgets of which {len(problems)} are of problems of {context.inputs['problems']}",
                expected="budgets of these problems",
            )
        for warning in (
            check_cap(list(budgets.values()), job.tau, job.spec.cap_tokens, f"{job.domain}.{job.effort}"),
            gate_warning(job.rl.gate, job.rl.shape),
        ):
            if warning:
                context.log.warn(warning)
        folder = context.inputs["model"]
        engine = context.ports.engine(load_model(folder, context.device), job.rl.optimizer)
        policy = policy_of(engine.model, load_tokenizer(folder), job.prompt, context)
        return cls(job, context, domain, budgets, problems, policy, engine)

    def step(self, step: int) -> Mapping[str, float]:
        """One batch of fresh rollouts, one optimiser step (``step`` counts from 0)."""
        config = self.job.rl
        tau = tau_at(config.annealing, self.job.tau_start, self.job.tau, self.clock)
        rollouts = self._rollouts(step)
        unscored_share(rollouts, config.max_unscored_share)
        judged = judge(self.job, self.budgets, rollouts, tau, step)
        live, groups = self.engine.sum_over_ranks([judged.credit.live_groups, judged.credit.groups])
        live_scale = lr_scale_of(live / groups, config.credit.live_share_floor)
        stats, trained = self._train(rollouts, judged, lr_scale(config.optimizer, step, config.steps) * live_scale)
        self.clock = next_clock(config.annealing, self.clock, judged.unreachable_share)
        metrics = batch_metrics(rollouts, judged) | trained
        metrics |= {"tau": tau, "length_weight": length_weight(config.warmup, step), "lr": stats.learning_rate}
        metrics |= {"grad_norm": stats.grad_norm, "skipped": float(stats.skipped)}
        if "accuracy" in metrics:
            self._watch(step, metrics["accuracy"])
        self._log_rollouts(step, rollouts, judged)
        self.last = metrics
        return metrics

    def _rollouts(self, step: int) -> list[Rollout]:
        config, seed = self.job.rl, self.context.seed
        drawn = epoch_draw(len(self.problems), step * config.problems_per_step, config.problems_per_step, seed)
        mine = drawn[self.context.rank :: self.context.world_size]
        effort = self.job.effort if self.job.conditioned else None
        asks = asks_for(self.domain, [self.problems[index] for index in mine], config.rollouts, effort, seed, step)
        return Collector(self.policy.sampler, self.policy.renderer).collect(asks, temperature=config.temperature)

    def _train(self, rollouts: Sequence[Rollout], judged: Judged, scale: float) -> tuple[StepStats, dict[str, float]]:
        """One optimiser step on the live rollouts; a step without any leaves weights and optimiser alone."""
        config = self.job.rl
        live = [index for index in range(len(rollouts)) if judged.credit.live_N[index]]
        lengths = [rollouts[index].counts.trainable for index in live]
        tokens, count = self.engine.sum_over_ranks([float(sum(lengths)), float(len(live))])
        if count == 0:
            return StepStats(0.0, False, 0.0), {"clip_fraction": 0.0, "kl": 0.0}
        weights = aggregation_weights(config.loss, lengths, tokens, count)
        rows = [
            _row(rollouts[index], float(judged.credit.advantages_N[index]), weight)
            for index, weight in zip(live, weights, strict=True)
        ]
        pad = self.policy.tokenizer.pad_token_id
        batches = engine_batches(self.engine, rows, config.batch.micro_batch_tokens, pad)
        clipped = log_ratio = 0.0
        for number, batch in enumerate(batches):
            logprobs = target_logprobs(self.engine.model, batch, config.temperature)
            # A batch that only fills up a rank has no signals; its weights are 0, so any numbers will do.
            behaviour, advantage = (batch.signals.get(name, batch.weights_BT) for name in ("behaviour", "advantage"))
            part = clipped_ratio(config.loss, logprobs, behaviour, advantage, batch.weights_BT)
            self.engine.backward(part.loss, last=number == len(batches) - 1)
            clipped, log_ratio = clipped + part.clipped, log_ratio + part.log_ratio
        stats = self.engine.step(scale)
        clipped, log_ratio = self.engine.sum_over_ranks([clipped, log_ratio])
        return stats, {"clip_fraction": clipped / tokens, "kl": log_ratio / tokens}

    def _watch(self, step: int, accuracy: float) -> None:
        self.collapse = observe(self.job.rl.collapse, self.collapse, step + 1, accuracy)
        if has_collapsed(self.job.rl.collapse, self.collapse):
            raise StageFailed(
                f"rl.{self.job.domain}.{self.job.effort}",
                got=f"accuracy {accuracy:.2f} after a start at {self.collapse.start:.2f}",
                expected=f"at least {self.job.rl.collapse.share:.0%} of the start",
                fix="raise tau, use gate 'reachable', start from the cold start or lower the learning rate",
            )

    def _log_rollouts(self, step: int, rollouts: Sequence[Rollout], judged: Judged) -> None:
        """Keep the first group of the step for a person to read."""
        first = range(min(self.job.rl.rollouts, len(rollouts)))
        self.context.log.rollouts(self._readable(step, index, rollouts[index], judged) for index in first)

    def _readable(self, step: int, index: int, rollout: Rollout, judged: Judged) -> dict[str, Any]:
        shaped = float(judged.shaped_N[index])
        return {
            "step": step + 1,
            "problem": rollout.problem.id,
            "sample": rollout.sample,
            "effort": rollout.effort,
            "prompt": rollout.problem.prompt,
            "response": self.policy.renderer.text(rollout.sampled.token_ids_T),
            "answer": rollout.answer_text,
            "expected": rollout.problem.answer,
            "reward": rollout.reward,
            "shaped": None if np.isnan(shaped) else shaped,
            "tokens": rollout.counts.counted,
            "limit": float(judged.limit_N[index]),
            "advantage": float(judged.credit.advantages_N[index]),
            "reason": rollout.verdict.reason,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"clock": self.clock, "collapse": dataclasses.asdict(self.collapse), "last": self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.clock = state["clock"]
        self.collapse = CollapseState(**state["collapse"])
        self.last = dict(state["last"])


def _row(rollout: Rollout, advantage: float, weight: float) -> TrainRow:
    """Prompt and response as one training row: only the model's own tokens carry weight."""
    sampled, prompt = rollout.sampled, len(rollout.prompt_ids)

    def stream(response_T: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros(prompt), response_T])

    return TrainRow(
        token_ids=np.concatenate([rollout.prompt_ids, sampled.token_ids_T]),
        weights=stream(np.where(sampled.roles_T == MODEL, weight, 0.0)),
        signals={
            "behaviour": stream(sampled.logprobs_T),
            "advantage": stream(np.full(len(sampled.token_ids_T), advantage)),
        },
    )

"""The student in training: rollouts of its own, each scored by the one teacher of its cell.

Axes: N response tokens that the model wrote, flattened over the rows of a micro-batch; V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from stages.core.context import StageContext
from stages.core.draw import epoch_draw
from stages.core.errors import DataError
from stages.core.keys import derive_seed
from stages.core.ports import TrainEngine
from stages.core.records import MODEL, Rollout
from stages.distill.balance import running_gaps, token_weights
from stages.distill.config import DistillJob, WarmStart
from stages.distill.effort import PARALLEL, largest_cosine, refresh
from stages.distill.teachers import Teachers
from stages.rollout.collect import Ask, Collector, asks_for
from stages.rollout.domain import Domain, open_domain
from stages.rollout.policy import Policy, policy_of
from stages.tasks.config import CellConfig
from stages.tasks.prompts import Renderer
from stages.train.batches import (
    MicroBatch,
    TrainRow,
    engine_batches,
    micro_batches,
    target_logits,
    target_logprobs,
)
from stages.train.kl_loss import TokenKL, full_reverse_kl, sampled_reverse_kl
from stages.train.model import load_model, load_tokenizer
from stages.train.schedule import lr_scale

PROMPTS_SEEN = 100
"""Problems a domain whose prompts say how large an embedding usually is."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One micro-batch of one cell, twice: row for row and response token for response token the same."""

    cell: str
    student: MicroBatch
    teacher: MicroBatch


@dataclass(slots=True)
class Student:
    """``step`` is what the training loop calls."""

    job: DistillJob
    context: StageContext
    domains: Mapping[str, Domain]
    teachers: Teachers
    policy: Policy
    engine: TrainEngine
    warm_rows: list[TrainRow] | None = None
    """Effort-tagged specialist rollouts; drawn when the first warm step needs them."""
    gaps: dict[str, float] = field(default_factory=dict)
    """Running mean reverse KL per token of each cell, in nats."""
    last: dict[str, float] = field(default_factory=dict)

    @classmethod
    def open(cls, job: DistillJob, context: StageContext) -> Student:
        folders = {cell.name: context.inputs.get(f"teacher.{cell.name}") for cell in job.cells}
        missing = [name for name, folder in folders.items() if folder is None]
        if missing:
            raise DataError(f"cell {missing[0]}", got="no teacher", expected="one specialist a cell")
        domains = {
            name: open_domain(name, spec, context.inputs[f"problems.{name}"], context.ports.sandbox)
            for name, spec in job.specs.items()
        }
        folder = context.inputs["model"]
        tokenizer = load_tokenizer(folder)
        teachers = Teachers({name: path for name, path in folders.items() if path}, tokenizer, context.device)
        model = load_model(folder, context.device)
        _refresh_effort_words(model, Renderer(tokenizer, job.prompt), domains.values(), job, context)
        engine = context.ports.engine(model, job.distill.optimizer)
        return cls(job, context, domains, teachers, policy_of(engine.model, tokenizer, job.prompt, context), engine)

    @property
    def warm_steps(self) -> int:
        return self.job.distill.warm_start.steps if self.job.distill.warm_start else 0

    @property
    def total_steps(self) -> int:
        return self.warm_steps + self.job.distill.steps

    def step(self, step: int) -> Mapping[str, float]:
        """``step`` counts from 0 over both parts."""
        self.last = self._warm_step(step) if step < self.warm_steps else self._distill_step(step - self.warm_steps)
        return self.last

    # Warm start

    def _warm_step(self, step: int) -> dict[str, float]:
        config = self.job.distill.warm_start
        assert config is not None
        if self.warm_rows is None:
            self.warm_rows = self._draw_warm_rows(config)
        seed = derive_seed(self.context.seed, "warm")
        drawn = epoch_draw(len(self.warm_rows), step * config.batch_rows, config.batch_rows, seed)
        mine = drawn[self.context.rank :: self.context.world_size]
        rows = [self.warm_rows[index] for index in mine]
        pad = self.policy.tokenizer.pad_token_id
        batches = engine_batches(self.engine, rows, self.job.distill.batch.micro_batch_tokens, pad)
        total = 0.0
        for number, batch in enumerate(batches):
            loss = -(batch.weights_BT * target_logprobs(self.engine.model, batch)).sum()
            self.engine.backward(loss, last=number == len(batches) - 1)
            total += float(loss.detach())
        stats = self.engine.step(config.lr / self.job.distill.optimizer.lr)
        (loss_sum,) = self.engine.sum_over_ranks([total])
        return {
            "loss": loss_sum,
            "lr": stats.learning_rate,
            "grad_norm": stats.grad_norm,
            "skipped": float(stats.skipped),
        }

    def _draw_warm_rows(self, config: WarmStart) -> list[TrainRow]:
        """Finished specialist rollouts, right or wrong, under the student's prompt; a step's rows weigh 1 in all."""
        rows = []
        for cell in self.job.cells:
            teacher = policy_of(self.teachers.model(cell.name), self.policy.tokenizer, self.job.prompt, self.context)
            domain = self.domains[cell.domain]
            seed = derive_seed(self.context.seed, "warm", cell.name)
            problems = [
                domain.problems[index] for index in epoch_draw(len(domain.problems), 0, config.rollouts_per_cell, seed)
            ]
            asks = asks_for(domain, problems, 1, self._teacher_effort(cell), seed)
            collector = Collector(teacher.sampler, teacher.renderer)
            for rollout in collector.collect(asks, temperature=self.job.distill.temperature, score=False):
                if not rollout.counts.truncated:
                    prompt = self.policy.renderer.prompt_ids(rollout.problem.prompt, cell.effort)
                    rows.append(_row(prompt, rollout, 1.0 / (rollout.counts.trainable * config.batch_rows)))
        if not rows:
            raise DataError("warm start", got="no finished specialist rollout", expected="at least one")
        return rows

    def _teacher_effort(self, cell: CellConfig) -> str | None:
        return cell.effort if self.job.conditioned_teachers else None

    # Distillation

    def _distill_step(self, step: int) -> dict[str, float]:
        config = self.job.distill
        by_cell = self._student_rollouts(step)
        own = {name: float(sum(rollout.counts.trainable for rollout in rolls)) for name, rolls in by_cell.items()}
        tokens = dict(zip(own, self.engine.sum_over_ranks(list(own.values())), strict=True))
        weights = token_weights(config.balance, tokens, self.gaps)
        sums = dict.fromkeys(tokens, 0.0)
        losses = clipped = 0.0
        pairs = [pair for cell in self.job.cells for pair in self._pairs(cell, by_cell[cell.name], weights)]
        for number, pair in enumerate(pairs):
            result = self._loss(pair)
            self.engine.backward(result.loss, last=number == len(pairs) - 1)
            sums[pair.cell] += float(result.kl_N.sum())
            losses, clipped = losses + float(result.loss.detach()), clipped + result.clipped
        stats = self.engine.step(lr_scale(config.optimizer, step, config.steps))
        measured = self.engine.sum_over_ranks([*sums.values(), losses, clipped])
        gaps = {name: value / tokens[name] for name, value in zip(tokens, measured, strict=False) if tokens[name]}
        self.gaps = running_gaps(self.gaps, gaps)
        every = sum(tokens.values())
        kl = sum(measured[: len(tokens)]) / every
        if step == 0 and kl > config.initial_kl_alarm:
            self.context.log.event(
                "alarm", message=f"first-step KL {kl:.3f} per token is above {config.initial_kl_alarm}"
            )
        return {
            "loss": measured[-2],
            "kl": kl,
            "kl_max_cell": max(gaps.values()),
            "clipped_share": measured[-1] / every,
            "tokens": every / (len(self.job.cells) * config.rollouts_per_cell),
            "lr": stats.learning_rate,
            "grad_norm": stats.grad_norm,
            "skipped": float(stats.skipped),
            **{f"kl.{name}": gap for name, gap in gaps.items()},
            **{f"token_share.{name}": count / every for name, count in tokens.items()},
        }

    def _student_rollouts(self, step: int) -> dict[str, list[Rollout]]:
        """On-policy rollouts of every cell in one sampler call, this rank's share."""
        asks: list[tuple[str, Ask]] = []
        count = self.job.distill.rollouts_per_cell
        for cell in self.job.cells:
            domain = self.domains[cell.domain]
            seed = derive_seed(self.context.seed, "distill", cell.name)
            drawn = epoch_draw(len(domain.problems), step * count, count, seed)
            mine = drawn[self.context.rank :: self.context.world_size]
            problems = [domain.problems[index] for index in mine]
            asks += [(cell.name, ask) for ask in asks_for(domain, problems, 1, cell.effort, seed, step)]
        collector = Collector(self.policy.sampler, self.policy.renderer)
        rollouts = collector.collect([ask for _, ask in asks], temperature=self.job.distill.temperature, score=False)
        by_cell: dict[str, list[Rollout]] = {cell.name: [] for cell in self.job.cells}
        for (name, _), rollout in zip(asks, rollouts, strict=True):
            by_cell[name].append(rollout)
        return by_cell

    def _pairs(self, cell: CellConfig, rollouts: Sequence[Rollout], weights: Mapping[str, float]) -> list[Pair]:
        """The micro-batches of one cell, the same response tokens under the student's prompt and the teacher's."""
        renderer, pad = self.policy.renderer, self.policy.tokenizer.pad_token_id
        mine = [_row(tuple(rollout.prompt_ids), rollout, weights[cell.name]) for rollout in rollouts]
        theirs = [
            _row(renderer.prompt_ids(rollout.problem.prompt, self._teacher_effort(cell)), rollout, 1.0)
            for rollout in rollouts
        ]
        batches = engine_batches(self.engine, mine, self.job.distill.batch.micro_batch_tokens, pad)
        return [Pair(cell.name, batch, self._teacher_view(batch, theirs)) for batch in batches]

    def _teacher_view(self, batch: MicroBatch, theirs: Sequence[TrainRow]) -> MicroBatch:
        """The rows of ``batch`` in the same order under the teacher's prompt; a filler is its own view."""
        if not batch.row_index:
            return batch
        rows = [theirs[index] for index in batch.row_index]
        tokens = len(rows) * max(row.columns for row in rows)
        (view,) = micro_batches(rows, tokens, self.policy.tokenizer.pad_token_id, self.engine.device)
        # Prompts of one cell differ from the student's by the effort message alone, so the order by length is kept.
        assert view.row_index == tuple(range(len(rows)))
        return view

    def _loss(self, pair: Pair) -> TokenKL:
        """Teacher's and student's logits of one micro-batch, and the configured divergence."""
        config, real = self.job.distill, len(self.policy.tokenizer)
        with torch.no_grad():
            teacher_NV = target_logits(self.teachers.model(pair.cell), pair.teacher)[:, :real]
        student_NV = target_logits(self.engine.model, pair.student)[:, :real]
        weights_N = pair.student.pick(pair.student.weights_BT)
        if config.mode == "full":
            return full_reverse_kl(student_NV, teacher_NV, weights_N, config.temperature)
        ids_N = pair.student.pick(pair.student.target_ids_BT)
        return sampled_reverse_kl(student_NV, teacher_NV, ids_N, weights_N, config.temperature, config.r_max)

    def state_dict(self) -> dict[str, Any]:
        return {"gaps": self.gaps, "last": self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.gaps, self.last = dict(state["gaps"]), dict(state["last"])


def _row(prompt_ids: tuple[int, ...], rollout: Rollout, weight: float) -> TrainRow:
    """The response under a prompt of our choice; only the model's own tokens carry weight."""
    sampled = rollout.sampled
    return TrainRow(
        token_ids=np.concatenate([np.asarray(prompt_ids, dtype=np.int64), sampled.token_ids_T]),
        weights=np.concatenate([np.zeros(len(prompt_ids)), np.where(sampled.roles_T == MODEL, weight, 0.0)]),
        signals={},
    )


def _refresh_effort_words(
    model: PreTrainedModel, renderer: Renderer, domains: Iterable[Domain], job: DistillJob, context: StageContext
) -> None:
    """See stages.distill.effort. Before the engine is built, whose master weights would not hear of it afterwards; a
    resumed run loads its own weights over these."""
    embedding, effort_ids = model.get_input_embeddings().weight, renderer.effort_ids()
    cosine = largest_cosine(embedding.detach(), effort_ids)
    context.log.event("effort_words", largest_cosine=round(cosine, 4))
    when = job.distill.fresh_effort_embeddings
    if when == "always" or (when == "auto" and cosine > PARALLEL):
        prompts = [problem.prompt for domain in domains for problem in domain.problems[:PROMPTS_SEEN]]
        used = [token for prompt in prompts for token in renderer.prompt_ids(prompt, None)]
        refresh(embedding, effort_ids, used, context.seed)
        context.log.event("effort_words_refreshed")

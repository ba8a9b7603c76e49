"""The cold start: supervised training on demonstrations. Inputs and outputs: see SFTJob."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stages.core.context import StageContext
from stages.core.keys import derive_seed
from stages.core.ports import Summary, TrainEngine
from stages.core.records import Demonstration
from stages.sft.config import SFTJob
from stages.sft.data import Corpus, build_corpus, draw_rows
from stages.tasks.problems import load_demonstrations
from stages.tasks.prompts import Renderer, set_template
from stages.tasks.tokenizer import build_word_tokenizer
from stages.train.batches import engine_batches, logprobs_of, split_over_ranks, target_logits
from stages.train.config import MicroBase
from stages.train.loop import train_loop
from stages.train.model import create_micro, load_model, load_tokenizer, save_trained
from stages.train.schedule import lr_scale


def run(job: SFTJob, context: StageContext) -> Summary:
    """Train the base model on the demonstrations and write its model folder.

    Raises:
        DataError: unreadable demonstrations, or a domain without a row that can be trained on.
    """
    demonstrations = {
        domain: load_demonstrations(context.inputs[f"demonstrations.{domain}"], domain) for domain in job.domains
    }
    model, tokenizer = _base(job, context, [item for items in demonstrations.values() for item in items])
    renderer = Renderer(tokenizer, job.prompt)
    longest = int(model.config.max_position_embeddings)
    corpus = build_corpus(demonstrations, renderer, job.sft.effort_words, longest)
    if corpus.dropped_long:
        context.log.warn(f"{corpus.dropped_long} demonstrations are longer than {longest} tokens and were left out")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    training = ColdStart(job, context.seed, corpus, renderer, context.ports.engine(model, job.sft.optimizer), tokenizer)
    train_loop(context, training.engine, job.sft.steps, training.step, training)
    set_template(tokenizer, job.prompt)
    save_trained(training.engine, tokenizer, context.out)
    return {
        **training.last,
        "rows": corpus.size,
        "dropped_long": corpus.dropped_long,
        "dropped_untrainable": corpus.dropped_untrainable,
        "parameters": parameters,
        "vocabulary": len(tokenizer),
    }


def _base(
    job: SFTJob, context: StageContext, demonstrations: Iterable[Demonstration]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The untrained micro model with a tokenizer of the demonstrations' words, or the pretrained model with its own."""
    base = job.base
    if isinstance(base, MicroBase):
        texts = [text for item in demonstrations for text in (item.prompt, *(part.content for part in item.response))]
        tokenizer = build_word_tokenizer(texts, job.prompt, job.sft.effort_words)
        seed = derive_seed(context.seed, "model")
        ids = tokenizer.eos_token_id, tokenizer.pad_token_id
        return create_micro(base, len(tokenizer), *ids, seed, context.device), tokenizer
    folder = context.inputs.get("base", base.path)
    return load_model(folder, context.device, base.dtype, base.revision), load_tokenizer(folder, base.revision)


@dataclass(slots=True)
class ColdStart:
    """``step`` is what the training loop calls."""

    job: SFTJob
    seed: int
    corpus: Corpus
    renderer: Renderer
    engine: TrainEngine
    tokenizer: PreTrainedTokenizerBase
    last: dict[str, float] = field(default_factory=dict)
    """Loss and next-token accuracy of the last step."""

    def step(self, step: int) -> Mapping[str, float]:
        """One optimiser step (``step`` counts from 0): cross-entropy, the weighted mean over the batch's tokens."""
        config, engine = self.job.sft, self.engine
        rows = draw_rows(self.corpus, self.renderer, config, self.seed, step)
        total = sum(float(row.weights.sum()) for row in rows)
        tokens = sum(int(np.count_nonzero(row.weights)) for row in rows)
        own = split_over_ranks(rows, engine.rank, engine.world_size)
        batches = engine_batches(engine, own, config.batch.micro_batch_tokens, self.tokenizer.pad_token_id)
        sums = torch.zeros(2, device=engine.device)
        for number, batch in enumerate(batches):
            logits_NV = target_logits(engine.model, batch)
            loss = -(batch.pick(batch.weights_BT) * logprobs_of(logits_NV, batch)).sum() / total
            engine.backward(loss, last=number == len(batches) - 1)
            right = (logits_NV.detach().argmax(-1) == batch.pick(batch.target_ids_BT)).sum()
            sums += torch.stack([loss.detach(), right])
        stats = engine.step(lr_scale(config.optimizer, step, config.steps))
        loss_sum, right_sum = engine.sum_over_ranks(sums.tolist())
        measured = {"loss": loss_sum, "token_accuracy": right_sum / tokens}
        self.last = {name: value for name, value in measured.items() if math.isfinite(value)}
        return {
            **measured,
            "tokens": tokens / len(rows),
            "lr": stats.learning_rate,
            "grad_norm": stats.grad_norm,
            "skipped": float(stats.skipped),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.last = dict(state["last"])

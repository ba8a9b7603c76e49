"""Demonstrations as training rows, and which of them a step trains on: pure functions of seed and step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stages.core.draw import epoch_draw
from stages.core.errors import DataError
from stages.core.keys import derive_seed
from stages.core.records import MODEL, Demonstration, FloatArray, IntArray
from stages.sft.config import SFTConfig
from stages.tasks.prompts import Renderer
from stages.train.batches import TrainRow


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One demonstration whose response is tokenised; its prompt is rendered when it is drawn."""

    prompt: str
    response_ids_T: IntArray
    weights_T: FloatArray
    """Loss weight per token of the response; 0 on tool tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """All demonstrations of the cold start."""

    renderer: Renderer
    examples: Mapping[str, Sequence[Example]]
    """By domain, none of them empty."""
    dropped_long: int
    """Longer than the context in one of their forms."""
    dropped_untrainable: int
    """Of weight 0, or without a token that the model writes."""

    @property
    def size(self) -> int:
        return sum(len(examples) for examples in self.examples.values())


def build_corpus(
    demonstrations: Mapping[str, Sequence[Demonstration]], renderer: Renderer, efforts: Sequence[str], context: int
) -> Corpus:
    """Tokenise every response.

    Args:
        demonstrations: by domain.
        efforts: the words that random effort messages name.
        context: longest prompt plus response, in tokens.

    Raises:
        DataError: nothing of a domain can be trained on.
    """
    around = max(len(renderer.prompt_ids("", effort)) for effort in (None, *efforts))
    examples: dict[str, list[Example]] = {}
    long = untrainable = 0
    for domain, items in demonstrations.items():
        examples[domain] = kept = []
        prompts = renderer.encode_many([item.prompt for item in items])
        for prompt_ids, example in zip(prompts, _examples(items, renderer), strict=True):
            if not example.weights_T.any():
                untrainable += 1
            elif around + len(prompt_ids) + len(example.response_ids_T) > context:
                long += 1
            else:
                kept.append(example)
        if not kept:
            raise DataError(
                f"demonstrations.{domain}",
                got=f"{long} rows beyond the context of {context} tokens and {untrainable} without a trainable token",
                expected="at least one row that can be trained on",
                fix="raise base.context or shorten the demonstrations",
            )
    return Corpus(renderer, examples, long, untrainable)


def _examples(items: Sequence[Demonstration], renderer: Renderer) -> list[Example]:
    responses = renderer.responses_ids([item.response for item in items])
    return [
        Example(item.prompt, ids_T, np.where(roles_T == MODEL, item.weight, 0.0))
        for item, (ids_T, roles_T) in zip(items, responses, strict=True)
    ]


def _row(example: Example, renderer: Renderer, effort: str | None) -> TrainRow:
    prompt_ids = renderer.prompt_ids(example.prompt, effort)
    return TrainRow(
        token_ids=np.concatenate([np.asarray(prompt_ids, dtype=np.int64), example.response_ids_T]),
        weights=np.concatenate([np.zeros(len(prompt_ids)), example.weights_T]),
    )


def draw_rows(corpus: Corpus, config: SFTConfig, seed: int, step: int) -> list[TrainRow]:
    """The ``batch_rows`` rows of one step.

    Every domain's rows are walked through in an order of their own, anew each epoch; a random share of the rows carries
    a random effort message.

    Args:
        step: optimiser step, from 0.
    """
    chosen = []
    for domain, (start, count) in _quota(corpus, config, step).items():
        examples = corpus.examples[domain]
        drawn = epoch_draw(len(examples), start, count, derive_seed(seed, "sft", domain)) if count else []
        chosen += [examples[index] for index in drawn]
    random = np.random.default_rng(derive_seed(seed, "sft", "effort", step))
    carries = random.random(len(chosen)) < config.random_effort_share
    words = random.integers(max(1, len(config.effort_words)), size=len(chosen))
    return [
        _row(example, corpus.renderer, config.effort_words[word] if carry and config.effort_words else None)
        for example, carry, word in zip(chosen, carries, words, strict=True)
    ]


def _quota(corpus: Corpus, config: SFTConfig, step: int) -> dict[str, tuple[int, int]]:
    """By domain (rows drawn before this step, rows of this step).

    Rows are dealt out along the running shares, so that after any number of steps every domain is within one row of
    its due.
    """
    weights = np.array([config.domain_weights.get(domain, 1.0) for domain in corpus.examples])
    bounds = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()

    def dealt(rows: int) -> list[int]:
        ends = [math.floor(bound * rows + 0.5) for bound in bounds[:-1]] + [rows]
        return [end - start for start, end in pairwise(ends)]

    before, after = dealt(step * config.batch_rows), dealt((step + 1) * config.batch_rows)
    return {domain: (old, new - old) for domain, old, new in zip(corpus.examples, before, after, strict=True)}

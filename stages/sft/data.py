"""Demonstrations as training rows, and which of them a step trains on: pure functions of seed and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stages.core.draw import epoch_draw
from stages.core.errors import DataError
from stages.core.keys import derive_seed
from stages.core.records import MODEL, Demonstration, FloatArray, IntArray
from stages.sft.config import SFTConfig
from stages.tasks.prompts import Renderer
from stages.train.batches import TrainRow

GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One demonstration, tokenised once; only prompts with an effort message are rendered when they are drawn."""

    prompt: str
    prompt_ids: tuple[int, ...]
    """Without an effort message."""
    response_ids_T: IntArray
    weights_T: FloatArray
    """The row's weight on the tokens that the model writes, 0 on those of tools."""

    @property
    def length(self) -> int:
        """Tokens, without an effort message."""
        return len(self.prompt_ids) + len(self.response_ids_T)

    def row(self, prompt_ids: tuple[int, ...]) -> TrainRow:
        return TrainRow(
            token_ids=np.concatenate([np.asarray(prompt_ids, dtype=np.int64), self.response_ids_T]),
            weights=np.concatenate([np.zeros(len(prompt_ids)), self.weights_T]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """All demonstrations of the cold start."""

    examples: Mapping[str, Sequence[Example]]
    """By domain, none of them empty."""
    dropped_long: int
    """Longer than the context under one of their prompts."""
    dropped_untrainable: int
    """Of weight 0, or without a token that the model writes."""

    @property
    def size(self) -> int:
        return sum(len(examples) for examples in self.examples.values())


def build_corpus(
    demonstrations: Mapping[str, Sequence[Demonstration]], renderer: Renderer, efforts: Sequence[str], context: int
) -> Corpus:
    """Tokenise every demonstration.

    Args:
        demonstrations: by domain.
        efforts: the words that random effort messages name.
        context: longest prompt plus response, in tokens.

    Raises:
        DataError: nothing of a domain can be trained on.
    """
    bare = len(renderer.prompt_ids("", None))
    message = max([len(renderer.prompt_ids("", effort)) - bare for effort in efforts], default=0)
    examples: dict[str, list[Example]] = {}
    dropped_long = dropped_untrainable = 0
    for domain, items in demonstrations.items():
        trainable = [example for example in _examples(items, renderer) if example.weights_T.any()]
        kept = [example for example in trainable if example.length + message <= context]
        untrainable, long = len(items) - len(trainable), len(trainable) - len(kept)
        if not kept:
            raise DataError(
                f"demonstrations.{domain}",
                got=f"{long} rows beyond the context of {context} tokens and {untrainable} without a trainable token",
                expected="at least one row that can be trained on",
                fix="raise base.context or shorten the demonstrations",
            )
        examples[domain] = kept
        dropped_long += long
        dropped_untrainable += untrainable
    return Corpus(examples, dropped_long, dropped_untrainable)


def _examples(items: Sequence[Demonstration], renderer: Renderer) -> list[Example]:
    prompts = renderer.prompts_ids([item.prompt for item in items], None)
    responses = renderer.responses_ids([item.response for item in items])
    return [
        Example(item.prompt, prompt_ids, response_ids_T, np.where(roles_T == MODEL, item.weight, 0.0))
        for item, prompt_ids, (response_ids_T, roles_T) in zip(items, prompts, responses, strict=True)
    ]


def draw_rows(corpus: Corpus, renderer: Renderer, config: SFTConfig, seed: int, step: int) -> list[TrainRow]:
    """The ``batch_rows`` rows of one step.

    Every domain's examples are walked through in an order of their own, anew each epoch; a random share of the rows
    carries a random effort message.

    Args:
        step: optimiser step, from 0.
    """
    chosen: list[Example] = []
    for domain, (start, count) in _quota(corpus, config, step).items():
        if count:
            examples = corpus.examples[domain]
            drawn = epoch_draw(len(examples), start, count, derive_seed(seed, "sft", domain))
            chosen += [examples[index] for index in drawn]
    prompts = [example.prompt_ids for example in chosen]
    for effort, indices in _tagged(config, len(chosen), derive_seed(seed, "sft", "effort", step)).items():
        rendered = renderer.prompts_ids([chosen[index].prompt for index in indices], effort)
        for index, prompt_ids in zip(indices, rendered, strict=True):
            prompts[index] = prompt_ids
    return [example.row(prompt_ids) for example, prompt_ids in zip(chosen, prompts, strict=True)]


def _tagged(config: SFTConfig, rows: int, seed: int) -> dict[str, list[int]]:
    """Which of the rows carry which effort's message."""
    if not config.effort_words:
        return {}
    generator = np.random.default_rng(seed)
    carries = generator.random(rows) < config.random_effort_share
    words = generator.integers(len(config.effort_words), size=rows)
    return {
        effort: np.flatnonzero(carries & (words == number)).tolist()
        for number, effort in enumerate(config.effort_words)
    }


def _quota(corpus: Corpus, config: SFTConfig, step: int) -> dict[str, tuple[int, int]]:
    """By domain (rows drawn before this step, rows of this step).

    A step's rows are laid over the running shares at an offset that follows the golden ratio: each domain gets its due,
    rounded up or down, and over the steps neither rounding wins.
    """
    weights = np.array([config.domain_weights.get(domain, 1.0) for domain in corpus.examples])
    bounds_D = np.concatenate([[0.0], np.cumsum(weights)[:-1] / weights.sum(), [1.0]])
    offsets_S = np.arange(step + 1) * GOLDEN % 1.0
    counts_DS = np.diff(np.floor(bounds_D[:, None] * config.batch_rows + offsets_S), axis=0).astype(int)
    starts_D = counts_DS[:, :-1].sum(axis=1)
    return {
        domain: (int(start), int(count))
        for domain, start, count in zip(corpus.examples, starts_D, counts_DS[:, -1], strict=True)
    }

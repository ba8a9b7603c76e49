"""``make bench``: our speed against a peer's on the same model and inputs, taken in turn in one process, as ratios.

One comparison so far: tokens per second of the local sampler and of transformers' ``generate``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedModel

from infra.samplers.local import LocalSampler
from stages.core.ports import SampleRequest
from stages.train.config import MicroBase
from stages.train.model import create_micro

ROWS, MAX_TOKENS, ROUNDS = 128, 100, 5
VOCAB, PAD, EOS = 60, 0, 1


def main() -> None:
    """Print the ratio of each round and their median."""
    torch.set_num_threads(1)
    model = create_micro(MicroBase(), VOCAB, EOS, PAD, seed=0, device="cpu")
    rng = np.random.default_rng(0)
    prompts = [tuple(int(token) for token in rng.integers(2, VOCAB, rng.integers(8, 20))) for _ in range(ROWS)]
    contenders = {
        "ours": lambda seed: _ours(model, prompts, seed),
        "generate": lambda seed: _peer(model, prompts, seed),
    }
    for contender in contenders.values():
        contender(0)  # warm-up
    ratios = []
    for round_number in range(1, ROUNDS + 1):
        speed = {name: _tokens_per_second(contender, round_number) for name, contender in contenders.items()}
        ratios.append(speed["ours"] / speed["generate"])
        print(f"round {round_number}: " + ", ".join(f"{name} {value:.0f} tokens/s" for name, value in speed.items()))
    print(f"sampler / transformers generate: {statistics.median(ratios):.2f} x (median of {ROUNDS})")


def _tokens_per_second(sample: Callable[[int], int], seed: int) -> float:
    start = time.perf_counter()
    tokens = sample(seed)
    return tokens / (time.perf_counter() - start)


def _ours(model: PreTrainedModel, prompts: list[tuple[int, ...]], seed: int) -> int:
    sampler = LocalSampler(model, vocab_size=VOCAB, eos_ids=frozenset({EOS}), pad_id=PAD)
    requests = [SampleRequest(prompt, MAX_TOKENS, seed * ROWS + index) for index, prompt in enumerate(prompts)]
    return sum(len(result.token_ids_T) for result in sampler.sample(requests, temperature=1.0))


def _peer(model: PreTrainedModel, prompts: list[tuple[int, ...]], seed: int) -> int:
    """The same prompts, left-padded; only tokens up to the end of each response count."""
    torch.manual_seed(seed)
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    output = model.generate(ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, do_sample=True, top_k=0)[:, width:]
    ended = (output == EOS).cumsum(1)
    return int(((ended == 0) | ((ended == 1) & (output == EOS))).sum())


if __name__ == "__main__":
    main()

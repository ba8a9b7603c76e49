"""Oracles: transformers' own greedy generate, the model's full forward pass, and the batch that must not matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from infra.samplers.local import LocalSampler
from stages.core.ports import SampleRequest
from stages.core.records import TOOL, IntArray, Sampled

EOS, PAD, CALL, VOCAB = 1, 0, 2, 40


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB + 8,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=96,
        initializer_range=0.4,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return Qwen3ForCausalLM(config).eval()


def sampler(model: Qwen3ForCausalLM, **options: int) -> LocalSampler:
    return LocalSampler(model, vocab_size=VOCAB, eos_ids=frozenset({EOS}), pad_id=PAD, **options)


def requests(count: int, max_tokens: int = 30) -> list[SampleRequest]:
    rng = np.random.default_rng(0)
    prompts = [tuple(int(token) for token in rng.integers(3, VOCAB, rng.integers(2, 14))) for _ in range(count)]
    return [SampleRequest(prompt, max_tokens, seed=index) for index, prompt in enumerate(prompts)]


def test_greedy_equals_transformers_generate(model: Qwen3ForCausalLM) -> None:
    asked = requests(12)
    banned = [[token] for token in range(VOCAB, VOCAB + 8)]
    for request, result in zip(asked, sampler(model).sample(asked, temperature=0), strict=True):
        expected = model.generate(
            torch.tensor([request.prompt_ids]),
            attention_mask=torch.ones(1, len(request.prompt_ids)),
            max_new_tokens=30,
            do_sample=False,
            bad_words_ids=banned,
        )
        assert result.token_ids_T.tolist() == expected[0, len(request.prompt_ids) :].tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_those_of_a_full_forward_pass_at_the_temperature(
    model: Qwen3ForCausalLM, temperature: float
) -> None:
    asked = requests(16)
    for request, result in zip(asked, sampler(model).sample(asked, temperature=temperature), strict=True):
        ids = torch.tensor([[*request.prompt_ids, *result.token_ids_T]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1, :VOCAB]
        expected = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(result.token_ids_T)[:, None])
        np.testing.assert_allclose(result.logprobs_T, expected[:, 0].numpy(), atol=2e-5)


def test_a_row_does_not_depend_on_the_batch_around_it(model: Qwen3ForCausalLM) -> None:
    asked = requests(20)
    together = sampler(model).sample(asked, temperature=1.0)
    small = sampler(model, batch_rows=3).sample(asked, temperature=1.0)
    alone = [sampler(model).sample([request], temperature=1.0)[0] for request in asked]
    for a, b, c in zip(together, small, alone, strict=True):
        assert a.token_ids_T.tolist() == b.token_ids_T.tolist() == c.token_ids_T.tolist()


def test_draws_follow_the_models_distribution(model: Qwen3ForCausalLM) -> None:
    prompt = (5, 9, 13)
    results = sampler(model).sample([SampleRequest(prompt, 1, seed=seed) for seed in range(4000)], temperature=1.0)
    counts = np.bincount([int(result.token_ids_T[0]) for result in results], minlength=VOCAB)
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([prompt])).logits[0, -1, :VOCAB], -1).numpy()
    # Five standard deviations of a multinomial count.
    assert (np.abs(counts / 4000 - expected) <= 5 * np.sqrt(expected * (1 - expected) / 4000) + 1e-3).all()


def test_padding_rows_of_the_vocabulary_are_never_sampled(model: Qwen3ForCausalLM) -> None:
    results = sampler(model).sample(requests(64), temperature=5.0)
    assert max(result.token_ids_T.max() for result in results) < VOCAB


def test_finish_reasons(model: Qwen3ForCausalLM) -> None:
    for result in sampler(model).sample(requests(64), temperature=2.0):
        assert result.finish == ("stop" if result.token_ids_T[-1] == EOS else "length")
        assert EOS not in result.token_ids_T[:-1]
        assert result.finish == "stop" or len(result.token_ids_T) == 30


def test_the_context_is_never_exceeded(model: Qwen3ForCausalLM) -> None:
    (result,) = LocalSampler(model, vocab_size=VOCAB, eos_ids=frozenset(), pad_id=PAD).sample(
        [SampleRequest((5,) * 50, 500, seed=0)], temperature=1.0
    )
    assert len(result.token_ids_T) == 96 - 50
    assert result.finish == "length"


def call_and_observe(
    model: Qwen3ForCausalLM, observation: Sequence[int] | None
) -> tuple[list[Sampled], dict[int, list[IntArray]]]:
    calls: dict[int, list[IntArray]] = {}

    def on_turn(row: int, turn_ids: IntArray) -> Sequence[int] | None:
        calls.setdefault(row, []).append(turn_ids)
        return observation

    results = sampler(model).sample(
        requests(64, max_tokens=40), temperature=3.0, turn_end_ids=frozenset({CALL}), on_turn=on_turn
    )
    return results, calls


def test_observations_follow_the_call_with_role_tool_and_do_not_count(model: Qwen3ForCausalLM) -> None:
    results, calls = call_and_observe(model, [7, 8, 9])
    assert calls
    for row, result in enumerate(results):
        ids, roles = result.token_ids_T, result.roles_T
        assert (result.logprobs_T[roles == TOOL] == 0).all()
        assert (roles == 1).sum() <= 40
        turns = np.flatnonzero((ids == CALL) & (roles == 1))
        answered = [turn for turn in turns if turn + 3 < len(ids)]
        for turn in answered:
            assert ids[turn + 1 : turn + 4].tolist() == [7, 8, 9]
            assert roles[turn + 1 : turn + 4].tolist() == [TOOL] * 3
        for turn_ids in calls.get(row, []):
            assert turn_ids[-1] == CALL
            assert (turn_ids == CALL).sum() == 1


def test_none_from_the_environment_ends_the_response_as_cut_off(model: Qwen3ForCausalLM) -> None:
    results, calls = call_and_observe(model, None)
    for row in calls:
        assert results[row].finish == "length"
        assert results[row].token_ids_T[-1] == CALL

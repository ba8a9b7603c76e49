"""Oracles: hand-laid rows, and log-probabilities computed row by row without padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.core.ports import StepStats
from stages.train.batches import (
    TrainRow,
    engine_batches,
    logprobs_of,
    micro_batches,
    split_over_ranks,
    target_logits,
    target_logprobs,
)
from stages.train.config import MicroBase
from stages.train.model import create_micro

PAD = 0
VOCABULARY = 20
MODEL = create_micro(
    MicroBase(hidden=16, heads=2, kv_heads=1, layers=2, intermediate=24, context=64, init_std=0.3),
    VOCABULARY,
    eos_id=1,
    pad_id=PAD,
    seed=1,
    device="cpu",
)


def row(*tokens: int, prompt: int = 1, weight: float = 1.0) -> TrainRow:
    weights = np.full(len(tokens), weight)
    weights[:prompt] = 0
    return TrainRow(np.array(tokens), weights, {"advantage": np.arange(len(tokens), dtype=float)})


def random_rows(lengths: Sequence[int], seed: int = 0) -> list[TrainRow]:
    draw = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        weights = draw.choice([0.0, 0.5, 2.0], size=length)
        weights[:2] = 0
        rows.append(TrainRow(draw.integers(2, VOCABULARY, size=length), weights))
    return rows


def test_column_j_is_about_token_j_plus_one() -> None:
    (batch,) = micro_batches([row(5, 6, 7), row(8, 9, 10, 11, prompt=2, weight=3.0)], 100, PAD)
    assert batch.row_index == (1, 0)
    assert batch.input_ids_BT.tolist() == [[8, 9, 10], [5, 6, PAD]]
    assert batch.target_ids_BT.tolist() == [[9, 10, 11], [6, 7, PAD]]
    assert batch.weights_BT.tolist() == [[0, 3, 3], [1, 1, 0]]
    assert batch.signals["advantage"].tolist() == [[1, 2, 3], [1, 2, 0]]
    assert batch.positions_N.tolist() == [1, 2, 3, 4]
    assert batch.first_column == 0
    assert batch.pick(batch.target_ids_BT).tolist() == [10, 11, 6, 7]
    assert batch.spread(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [[0, 1, 2], [3, 4, 0]]


@given(st.lists(st.integers(2, 30), min_size=1, max_size=20), st.integers(1, 80))
def test_every_row_is_in_one_batch_within_the_token_limit(lengths: list[int], limit: int) -> None:
    batches = micro_batches(random_rows(lengths), limit, PAD)
    assert sorted(index for batch in batches for index in batch.row_index) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.row_index) == 1 or batch.input_ids_BT.numel() <= limit


def test_padding_and_cuts_do_not_change_a_logprob() -> None:
    rows = random_rows([4, 17, 9, 23, 2, 11])
    for limit in (1, 40, 1000):
        for batch in micro_batches(rows, limit, PAD):
            logprobs_BT = target_logprobs(MODEL, batch, temperature=0.7)
            for line, index in zip(logprobs_BT, batch.row_index, strict=True):
                tokens = torch.from_numpy(rows[index].token_ids)
                logits = MODEL(input_ids=tokens[None]).logits[0, :-1]
                alone = torch.log_softmax(logits / 0.7, -1).gather(1, tokens[1:, None])[:, 0]
                expected = torch.where(torch.from_numpy(rows[index].weights[1:]) != 0, alone, 0.0)
                torch.testing.assert_close(line[: len(expected)], expected, atol=1e-5, rtol=0)
                assert not line[len(expected) :].any()


def test_gradient_does_not_depend_on_the_cut() -> None:
    rows = random_rows([4, 17, 9, 23, 2, 11])
    found = []
    for limit in (1, 40, 1000):
        MODEL.zero_grad()
        for batch in micro_batches(rows, limit, PAD):
            (batch.pick(batch.weights_BT) * logprobs_of(target_logits(MODEL, batch), batch)).sum().backward()
        found.append(torch.cat([value.grad.flatten() for value in MODEL.parameters() if value.grad is not None]))
    for other in found[1:]:
        assert float((other - found[0]).norm() / found[0].norm()) < 1e-6


def test_a_row_must_have_a_context_and_streams_of_its_length() -> None:
    with pytest.raises(ValueError, match="first token"):
        row(5, 6, prompt=0)
    with pytest.raises(ValueError, match="two tokens"):
        row(5)
    with pytest.raises(ValueError, match="1 values for 2 tokens"):
        TrainRow(np.array([5, 6]), np.zeros(2), {"advantage": np.zeros(1)})


class Ranks:
    """The engine of one of two ranks as far as batches need it; the other has ``others`` micro-batches."""

    device = torch.device("cpu")
    world_size = 2
    model = MODEL

    def __init__(self, rank: int, others: int) -> None:
        self.rank = rank
        self._others = others

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        theirs = [0.0, 0.0]
        theirs[1 - self.rank] = self._others
        return [mine + other for mine, other in zip(values, theirs, strict=True)]

    def step(self, scale: float) -> StepStats:
        raise AssertionError("not a training test")


@pytest.mark.parametrize("rows", [[], [row(5, 6, 7)]])
def test_a_rank_with_less_is_filled_up_with_batches_that_train_nothing(rows: list[TrainRow]) -> None:
    batches = engine_batches(Ranks(rank=1, others=3), rows, 100, PAD)  # type: ignore[arg-type]
    assert len(batches) == 3
    MODEL.zero_grad()
    for filler in batches[len(rows) :]:
        assert filler.row_index == ()
        assert not filler.weights_BT.any()
        logprobs_BT = target_logprobs(MODEL, filler)
        assert not logprobs_BT.any()
        (filler.weights_BT * logprobs_BT).sum().backward()
    assert all(value.grad is None or not value.grad.any() for value in MODEL.parameters())


def test_ranks_share_all_rows_in_like_amounts() -> None:
    rows = random_rows([3, 30, 4, 29, 5, 28, 6])
    shares = [split_over_ranks(rows, rank, 2) for rank in range(2)]
    assert [[item.columns for item in share] for share in shares] == [[29, 27, 4, 2], [28, 5, 3]]

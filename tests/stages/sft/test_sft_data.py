"""Oracles: rows worked by hand, counts of draws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.errors import DataError
from stages.core.records import Demonstration, Segment
from stages.sft.config import SFTConfig
from stages.sft.data import Corpus, build_corpus, draw_rows
from stages.tasks.config import PromptConfig
from stages.tasks.prompts import Renderer
from stages.tasks.tokenizer import build_word_tokenizer
from stages.train.batches import TrainRow

EFFORTS = ("low", "high", "max")
PROMPT = PromptConfig(efforts=EFFORTS)
TOKENIZER = build_word_tokenizer([f"a b c <call> </call> <obs> {' '.join(map(str, range(100)))}"], PROMPT)
RENDERER = Renderer(TOKENIZER, PROMPT)


def demo(number: int, domain: str = "x", response: str = "a </think> b", weight: float = 1.0) -> Demonstration:
    return Demonstration(f"{domain}{number}", domain, str(number), (Segment("assistant", response),), weight)


def corpus(**sizes: int) -> Corpus:
    items = {domain: [demo(number, domain) for number in range(size)] for domain, size in sizes.items()}
    return build_corpus(items, RENDERER, EFFORTS, context=64)


def words(row: TrainRow) -> list[str]:
    return str(TOKENIZER.decode(row.token_ids)).split()


def test_only_what_the_model_writes_carries_weight() -> None:
    segments = (Segment("assistant", "a <call> b </call>"), Segment("tool", "<obs> 7"), Segment("assistant", "c"))
    built = build_corpus({"x": [Demonstration("1", "x", "5", segments, 2.0)]}, RENDERER, EFFORTS, context=64)
    (row,) = draw_rows(built, RENDERER, SFTConfig(batch_rows=1, random_effort_share=0), seed=1, step=0)
    assert words(row) == [
        "<user>",
        "5",
        "<assistant>",
        "<think>",
        "a",
        "<call>",
        "b",
        "</call>",
        "<obs>",
        "7",
        "c",
        "<eos>",
    ]
    assert row.weights.tolist() == [0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 2, 2]


def test_an_effort_message_stands_before_the_prompt() -> None:
    (row,) = draw_rows(corpus(x=1), RENDERER, SFTConfig(batch_rows=1, random_effort_share=1), seed=1, step=0)
    text = words(row)
    assert text[:3] == ["<option>", "Reasoning", "effort:"]
    assert text[3] in EFFORTS
    assert text[4:] == ["<end>", "<user>", "0", "<assistant>", "<think>", "a", "</think>", "b", "<eos>"]
    assert row.weights.tolist() == [0] * 9 + [1] * 4


def test_efforts_come_in_their_share_and_alike() -> None:
    """1,200 draws: three standard deviations are .043 of the share and .036 of a word's."""
    config = SFTConfig(batch_rows=100, random_effort_share=0.5)
    built = corpus(x=50)
    rows = [row for step in range(12) for row in draw_rows(built, RENDERER, config, 1, step)]
    tags = Counter(words(row)[3] for row in rows if words(row)[0] == "<option>")
    assert sum(tags.values()) / len(rows) == pytest.approx(0.5, abs=0.043)
    assert {effort: tags[effort] / len(rows) for effort in EFFORTS} == pytest.approx(
        dict.fromkeys(EFFORTS, 1 / 6), abs=0.036
    )


def test_every_epoch_visits_every_row_once() -> None:
    config = SFTConfig(batch_rows=7, random_effort_share=0)
    built = corpus(x=14)
    seen = [words(row)[1] for step in range(4) for row in draw_rows(built, RENDERER, config, 1, step)]
    assert sorted(seen[:14]) == sorted(seen[14:]) == sorted(str(number) for number in range(14))
    assert seen[:14] != seen[14:]


@given(
    st.lists(st.floats(0.1, 5), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 30), st.integers(0, 2**32)
)
def test_domains_get_their_share_in_every_step_and_over_all(
    weights: list[float], batch_rows: int, steps: int, seed: int
) -> None:
    names = [f"d{number}" for number in range(len(weights))]
    config = SFTConfig(
        batch_rows=batch_rows, domain_weights=dict(zip(names, weights, strict=True)), random_effort_share=0
    )
    built = BY_COUNT[len(names)]
    drawn: Counter[int] = Counter()
    for step in range(steps):
        rows = draw_rows(built, RENDERER, config, seed, step)
        assert len(rows) == batch_rows
        own = Counter(int(words(row)[1]) for row in rows)
        drawn.update(own)
        for number, weight in enumerate(weights):
            due = weight / sum(weights) * batch_rows
            assert abs(own[number] - due) < 1 + 1e-6
            assert abs(drawn[number] - due * (step + 1)) < 3


BY_COUNT = {
    count: build_corpus({f"d{number}": [demo(number)] for number in range(count)}, RENDERER, EFFORTS, context=64)
    for count in range(1, 5)
}
"""One row a domain, whose prompt is the domain's number."""


def test_draws_depend_on_seed_and_step_alone() -> None:
    config = SFTConfig(batch_rows=16)
    built = corpus(x=40, y=30)

    def tokens(seed: int, step: int) -> list[list[int]]:
        return [row.token_ids.tolist() for row in draw_rows(built, RENDERER, config, seed, step)]

    tokens(1, 4)
    assert tokens(1, 5) == tokens(1, 5)
    assert tokens(1, 5) != tokens(2, 5)


def test_long_and_untrainable_rows_are_dropped_and_counted() -> None:
    """Effort message 5 + prompt 4 + EOS: 54 words of response just fit into 64."""
    fits, long = (demo(number, response=" ".join(["a"] * count)) for number, count in ((1, 54), (2, 55)))
    built = build_corpus({"x": [fits, long, demo(3, weight=0.0)]}, RENDERER, EFFORTS, context=64)
    assert built.size == 1
    assert (built.dropped_long, built.dropped_untrainable) == (1, 1)
    (row,) = draw_rows(built, RENDERER, SFTConfig(batch_rows=1, random_effort_share=1), seed=1, step=0)
    assert len(row.token_ids) == 64
    assert np.count_nonzero(row.weights) == 55


def test_a_domain_without_a_usable_row_is_an_error() -> None:
    """Prompt 4 + ``a`` + EOS fit into 7; ``a </think> b`` does not."""
    with pytest.raises(DataError, match=r"demonstrations\.y: got 1 rows beyond the context of 7 tokens and 1 without"):
        build_corpus({"x": [demo(1, response="a")], "y": [demo(1), demo(2, weight=0)]}, RENDERER, (), context=7)

"""Token accounting. Oracle: hand-counted token sequences, methods section 2, and the published case of tool output."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.records import MODEL, TOOL, TokenCounts
from stages.rewards.accounting import count_tokens

OPEN, CLOSE, EOS, A = 1, 2, 3, 9


def count(ids, roles=None, *, finish="stop", opened=False, counting="thinking") -> TokenCounts:
    return count_tokens(
        np.array(ids, dtype=np.int64),
        np.array([MODEL] * len(ids) if roles is None else roles, dtype=np.int64),
        finish,
        think_open_id=OPEN,
        think_close_id=CLOSE,
        opened_by_prompt=opened,
        counting=counting,
        eos_ids=(EOS,),
    )


@pytest.mark.parametrize(
    ("ids", "opened", "counted", "answer"),
    [
        ([OPEN, A, A, CLOSE, A, EOS], False, 2, 1),
        ([A, A, CLOSE, A, EOS], True, 2, 1),
        ([A, A, A, EOS], False, 0, 3),
        ([OPEN, A, A, A], False, 3, 0),
        ([A, OPEN, A, A], False, 3, 0),
        ([A, A, EOS], True, 2, 0),
        ([A, OPEN, A, CLOSE, A], False, 1, 2),
        ([OPEN, A, OPEN, A, CLOSE, A, EOS], False, 2, 1),
        ([OPEN, A, CLOSE, A, CLOSE, A, EOS], False, 1, 2),
        ([OPEN, A, CLOSE, A, OPEN, A, A, CLOSE, A], False, 3, 2),
        ([A, A, CLOSE, A, EOS], False, 2, 1),
        ([OPEN, CLOSE, A, EOS], False, 0, 1),
        ([], False, 0, 0),
        ([], True, 0, 0),
    ],
    ids=[
        "between the tags",
        "opened by the prompt",
        "no tags",
        "never closed",
        "never closed, text before",
        "never closed, opened by the prompt",
        "text before the tag is answer",
        "second opening tag",
        "second closing tag",
        "two spans",
        "closing tag alone",
        "empty span",
        "empty response",
        "empty response, opened by the prompt",
    ],
)
def test_thinking_counts(ids, opened, counted, answer):
    counts = count(ids, opened=opened)
    assert (counts.counted, counts.answer, counts.trainable) == (counted, answer, len(ids))


def test_tool_output_is_not_the_models_length():
    """Mask 0,0,1,1,1,0,0,0,0,1,1: T = 5, though the span is 9."""
    mask = [0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    counts = count([A] * 11, mask, counting="cumulative")
    assert (counts.counted, counts.trainable) == (5, 5)


@pytest.mark.parametrize(
    ("ids", "roles", "counted", "answer"),
    [
        # reasoning, call, observation, reasoning, closing tag, answer, end
        ([A, A, A, A, A, CLOSE, A, EOS], [1, 1, 1, 0, 1, 1, 1, 1], 4, 1),
        # a call after the closing tag still counts; the last turn's text is the answer
        ([A, CLOSE, A, A, A, A, EOS], [1, 1, 1, 1, 0, 1, 1], 3, 1),
        # each turn thinks and closes
        ([A, CLOSE, A, A, OPEN, A, CLOSE, A, A], [1, 1, 1, 0, 1, 1, 1, 1, 1], 3, 2),
        # the last span stays open
        ([A, CLOSE, A, A, OPEN, A, A], [1, 1, 1, 0, 1, 1, 1], 4, 0),
    ],
    ids=["thinking around a call", "call after the tag", "a span a turn", "left open"],
)
def test_cumulative_counts_all_turns(ids, roles, counted, answer):
    counts = count(ids, roles, opened=True, counting="cumulative")
    assert (counts.counted, counts.answer, counts.trainable) == (counted, answer, sum(roles))


def test_a_tools_tags_neither_close_nor_open_the_span():
    counts = count([A, CLOSE, OPEN, A, CLOSE, A], [MODEL, TOOL, TOOL, MODEL, MODEL, MODEL], opened=True)
    assert (counts.counted, counts.answer) == (2, 1)


def test_cut_by_a_cap_is_truncated_wherever_it_happened():
    assert count([A, A], opened=True, finish="length").truncated
    assert count([A, CLOSE, A], opened=True, finish="length").truncated
    assert not count([A, CLOSE, A, EOS], opened=True).truncated


def test_roles_of_another_length_are_refused():
    with pytest.raises(ValueError, match="roles"):
        count([A, A], [MODEL])


@given(
    st.lists(st.tuples(st.sampled_from([OPEN, CLOSE, EOS, A]), st.sampled_from([MODEL, TOOL])), max_size=20),
    st.booleans(),
    st.sampled_from(["thinking", "cumulative"]),
)
def test_every_plain_model_token_is_counted_once(tokens, opened, counting):
    """Invariant: T and answer split the model's tokens that are neither tag nor end; tool tokens change neither sum."""
    ids, roles = [token for token, _ in tokens], [role for _, role in tokens]
    counts = count(ids, roles, opened=opened, counting=counting)
    assert counts.counted + counts.answer == sum(token == A and role == MODEL for token, role in tokens)
    assert counts.counted >= 0
    assert counts.answer >= 0
    assert counts.trainable == roles.count(MODEL)

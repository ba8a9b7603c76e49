"""Token accounting (methods, section 2): the one count for budgets, rewards, losses, reports and serving.

Axis: T tokens of one response, model and tool tokens in order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import numpy as np

from stages.core.records import MODEL, TOOL, Finish, IntArray, TokenCounts
from stages.rewards.group import BoolArray

Counting = Literal["thinking", "cumulative"]


def count_tokens(
    token_ids_T: IntArray,
    roles_T: IntArray,
    finish: Finish,
    *,
    think_open_id: int,
    think_close_id: int,
    opened_by_prompt: bool,
    counting: Counting,
    eos_ids: Collection[int],
) -> TokenCounts:
    """Count one response, in tokens.

    Only model tokens count, and of these neither thinking tags nor end-of-sequence. ``thinking``: T is what stands
    inside the thinking spans, the rest is answer. ``cumulative``: T is everything over all turns up to the last closing
    tag or, where later, the last tool token (a call after the tag is still a call); what follows is the answer. Without
    a closing tag there is no answer in ``cumulative``, and a span left open takes everything in both.

    Args:
        token_ids_T: the response, without the prompt.
        roles_T: MODEL or TOOL per token; tags that a tool wrote open and close nothing.
        opened_by_prompt: the template has opened the thinking span before the first generated token.

    Raises:
        ValueError: token ids and roles differ in length.
    """
    if token_ids_T.shape != roles_T.shape:
        raise ValueError(f"{token_ids_T.shape} token ids and {roles_T.shape} roles")
    model_T = roles_T == MODEL
    opens_T = model_T & (token_ids_T == think_open_id)
    closes_T = model_T & (token_ids_T == think_close_id)
    plain_T = model_T & ~opens_T & ~closes_T & ~np.isin(token_ids_T, list(eos_ids))
    inside_T, open_at_end = _inside(opens_T, closes_T, opened_by_prompt)
    if open_at_end:
        answer_T = np.zeros_like(plain_T)
    elif counting == "thinking":
        answer_T = plain_T & ~inside_T
    else:
        answer_T = plain_T & _after_last(closes_T, closes_T | (roles_T == TOOL))
    answer = int(answer_T.sum())
    return TokenCounts(
        counted=int(plain_T.sum()) - answer,
        answer=answer,
        trainable=int(model_T.sum()),
        truncated=finish == "length",
    )


def _inside(opens_T: BoolArray, closes_T: BoolArray, opened_by_prompt: bool) -> tuple[BoolArray, bool]:
    """(whether each token stands inside a thinking span, whether the last span was left open).

    Spans do not nest: an opening tag inside a span and a closing one outside change nothing, but for a first closing
    tag that nothing opened. There the span began with the response, or reasoning without the tag would go uncounted.
    """
    tags_n = np.flatnonzero(opens_T | closes_T)
    inside = opened_by_prompt or (tags_n.size > 0 and bool(closes_T[tags_n[0]]))
    inside_T = np.zeros(opens_T.shape, dtype=bool)
    start = 0
    for at in tags_n:
        inside_T[start:at] = inside
        inside, start = bool(opens_T[at]), int(at)
    inside_T[start:] = inside
    return inside_T, inside


def _after_last(required_T: BoolArray, marks_T: BoolArray) -> BoolArray:
    """True behind the last mark; False everywhere where nothing ``required`` occurs."""
    after_T = np.zeros(marks_T.shape, dtype=bool)
    if required_T.any():
        after_T[np.flatnonzero(marks_T)[-1] + 1 :] = True
    return after_T

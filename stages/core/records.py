"""The records that travel between modules. Axes: P problems, G rollouts of one group, T tokens of one response.

Token arrays run over the *response*: everything after the prompt, model tokens and tool tokens in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stages.core.keys import digest_of

Finish = Literal["stop", "length"]
"""``stop``: the model ended its answer. ``length``: a token or turn cap cut it off."""

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MODEL = 1
"""Role of a token that the model wrote: it counts, and it may be trained."""
TOOL = 0
"""Role of a token that an environment wrote: it never counts and is never trained."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One task with its reference answer, as loaded: nothing is coerced."""

    id: str
    domain: str
    prompt: str
    """The user's message."""
    answer: str
    """The reference, exactly as written in the file."""
    difficulty: str | None = None
    """``easy``, ``medium`` or ``hard`` where the data says so; else thirds of the cold-start pass rate."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the domain's verifier or environment needs beside the answer, e.g. ``tests``."""

    @property
    def digest(self) -> str:
        return digest_of(asdict(self))


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of text by one writer inside a response."""

    role: Literal["assistant", "tool"]
    content: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One worked response for the cold start."""

    id: str
    domain: str
    prompt: str
    response: tuple[Segment, ...]
    """From the first token after the prompt (inside the thinking span where the template opens it) to the answer."""
    weight: float = 1.0
    """Loss weight of the row, dimensionless."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What a sampler returns for one request."""

    token_ids_T: IntArray
    roles_T: IntArray
    """MODEL or TOOL per token."""
    logprobs_T: FloatArray
    """Log-probability of each token under the policy that sampled it, at the sampling temperature; 0 on TOOL tokens."""
    finish: Finish


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Section 2 of the methods: one count for budgets, rewards, losses, reports and serving."""

    counted: int
    """T(y): what a budget limits, in tokens."""
    answer: int
    """Tokens after the thinking span, end-of-sequence not counted."""
    trainable: int
    """Sum of the loss mask."""
    truncated: bool
    """Cut by a cap before the answer ended: over budget whatever its length."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one response."""

    reward: float | None
    """Raw task reward R in [0, 1]; None: the machinery failed, so the rollout is unscored, never wrong."""
    reason: str = ""
    """One short clause for a person who reads rollouts."""


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One sampled, counted and scored response."""

    problem: Problem
    group: str
    """Group id: rollouts with the same id share a baseline. Never inferred from position."""
    sample: int
    """Index inside the group."""
    effort: str | None
    """The effort message of the prompt; None: none was rendered."""
    prompt_ids: IntArray
    sampled: Sampled
    counts: TokenCounts
    verdict: Verdict
    answer_text: str
    """What the verifier was given."""
    temperature: float
    """Sampling temperature: whoever scores these tokens again must divide by the same."""

    @property
    def reward(self) -> float | None:
        return self.verdict.reward


@dataclass(frozen=True, slots=True)
class Budget:
    """A row of the budget table (section 3): raw, without tau and cap."""

    problem_id: str
    domain: str
    b0_tokens: float
    """Percentile rho of the counted tokens of the correct, finished cold-start rollouts."""
    samples: int
    correct: int
    pass_rate: float
    bucket: str
    """Difficulty bucket: ``easy``, ``medium`` or ``hard``."""
    method: str
    """E.g. ``p50``."""
    fallback: str
    """``none``, ``bucket`` or ``domain``: whose median stands in where nothing was correct."""
    median_correct_tokens: float | None
    median_tokens: float
    median_answer_tokens: float

"""What a stage needs from outside. The worker hands in implementations; a stage never imports one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stages.core.records import IntArray, Sampled

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One response to sample."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    """Cap on model tokens over all turns; observations do not count."""
    seed: int
    """Decides every draw of this row whatever the batch around it."""


TurnHook = Callable[[int, IntArray], Sequence[int] | None]
"""Called with (row, model tokens since the last turn) when a row emits a turn-ending token.

Returns the observation's token ids, which follow with role TOOL before the model goes on, or None: the response ends.
"""


class Sampler(Protocol):
    """Draws responses from the policy. Order of the result = order of the requests."""

    def sample(
        self,
        requests: Sequence[SampleRequest],
        *,
        temperature: float,
        turn_end_ids: frozenset[int] = frozenset(),
        on_turn: TurnHook | None = None,
    ) -> list[Sampled]:
        """Args:
        temperature: > 0 divides the logits; 0 is greedy (log-probs then at temperature 1).
        turn_end_ids: tokens that hand the turn to ``on_turn``; end-of-sequence ids always end a response.
        """
        ...


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one optimiser step did."""

    grad_norm: float
    """L2 norm before clipping, over all ranks."""
    skipped: bool
    """True: loss or gradient was not finite and the weights were left as they were."""
    learning_rate: float


class TrainEngine(Protocol):
    """Holds model and optimiser on this rank. The gradient is the *sum* of what ``backward`` was given, over
    micro-batches and ranks: whoever calls divides by a global denominator first (see ``sum_over_ranks``)."""

    model: torch.nn.Module
    """The trainable module: call it for logits."""
    device: torch.device
    rank: int
    world_size: int

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Accumulate the gradient of one micro-batch; ``last`` marks the step's final one. Every rank calls this
        equally often."""
        ...

    def step(self, scale: float) -> StepStats:
        """Clip, step at learning rate ``scale`` x the configured ones, zero the gradient."""
        ...

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]: ...

    def save_state(self, folder: Path) -> None:
        """Weights and optimiser state into an empty folder; every rank calls it."""
        ...

    def load_state(self, folder: Path) -> None: ...

    def save_weights(self, folder: Path) -> None:
        """The consolidated weights as ``model.safetensors`` with config; written by rank 0, every rank calls it."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """What a program did in the sandbox."""

    outputs: tuple[Any, ...]
    """One JSON value per call, in order; shorter than the calls where the program ended early."""
    error: str
    """Empty, or the candidate's fault: an exception's name, ``timeout``, ``resource_limit``, ``output_limit``."""
    infra_error: str = ""
    """Not empty: the sandbox itself failed, and nothing may be concluded about the program."""


class Sandbox(Protocol):
    """Runs a candidate's program away from us. It is given inputs only: expected values never enter it."""

    def execute(self, program: str, entry: str, calls: Sequence[Any]) -> Execution:
        """Define ``program``, then call ``entry`` once for each of ``calls``."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside, as the worker composed it for one stage."""

    engine: Callable[..., TrainEngine]
    """``engine(model, optimizer_config) -> TrainEngine``."""
    sampler: Callable[..., Sampler]
    """``sampler(model, tokenizer) -> Sampler`` over a live module."""
    sandbox: Callable[..., Sandbox]
    """``sandbox(timeout_s=, memory_mb=) -> Sandbox``, where a verifier or an environment runs programs."""


Summary = Mapping[str, Any]
"""What a stage returns: JSON-safe numbers and words for result.json, the plan's history and the tracker."""

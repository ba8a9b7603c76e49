"""From rows of tokens to micro-batches, and the model's scores of their targets; the same for SFT, RL and distillation.

A training step is a weighted sum over tokens: whoever builds the rows decides every token's weight (credit, masks,
denominators), the trainer executes. Axes: B rows, T input columns, N trained tokens of a micro-batch in row order,
V vocabulary.

Shift convention: a row of L tokens becomes L - 1 columns. Column j reads token j and its logits score token j + 1, so
column j of targets, weights and signals is that of token j + 1. Rows are padded on the right and the model gets no
attention mask: under causal attention no real token sees the padding, and attention without a mask is faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from stages.core.ports import TrainEngine
from stages.core.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class TrainRow:
    """Prompt and response of one example."""

    token_ids: IntArray
    """(L,) prompt, then response."""
    weights: FloatArray
    """(L,) loss weight of each token as a target; 0 on prompt and tool tokens, and always on the first token."""
    signals: Mapping[str, FloatArray] = field(default_factory=dict)
    """(L,) each: further numbers per token, e.g. advantages or behaviour log-probs."""

    def __post_init__(self) -> None:
        if len(self.token_ids) < 2 or self.weights[0] != 0:
            raise ValueError("a training row needs two tokens, and its first token cannot be a target")
        for values in (self.weights, *self.signals.values()):
            if len(values) != len(self.token_ids):
                raise ValueError(f"{len(values)} values for {len(self.token_ids)} tokens")

    @property
    def columns(self) -> int:
        """Input columns that the row takes: its length less one."""
        return len(self.token_ids) - 1


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """What one forward pass takes; every (B, T) array follows the shift convention above."""

    input_ids_BT: torch.Tensor
    target_ids_BT: torch.Tensor
    weights_BT: torch.Tensor
    """float32; 0 where nothing is trained, padding included."""
    signals: Mapping[str, torch.Tensor]
    """(B, T) float32 each; 0 on padding."""
    positions_N: torch.Tensor
    """Indices into a flattened (B, T) array where the weight is not 0, ascending."""
    first_column: int
    """The lowest column that holds a trained token; T - 1 where none does."""
    row_index: tuple[int, ...]
    """Where each of the B rows stood among the rows given; empty for one that only fills up a rank."""

    def pick(self, values_BT: torch.Tensor) -> torch.Tensor:
        """(N,) values at the trained tokens."""
        return values_BT.flatten().index_select(0, self.positions_N)

    def spread(self, values_N: torch.Tensor) -> torch.Tensor:
        """(B, T) with ``values_N`` at the trained tokens and 0 elsewhere; the inverse of ``pick``."""
        flat = values_N.new_zeros(self.weights_BT.numel()).index_copy(0, self.positions_N, values_N)
        return flat.view_as(self.weights_BT)


def micro_batches(
    rows: Sequence[TrainRow], micro_batch_tokens: int, pad_id: int, device: torch.device | str = "cpu"
) -> list[MicroBatch]:
    """Sort by length, longest first, and cut so that rows x columns <= ``micro_batch_tokens``, one row at least.

    The sum of the losses over the micro-batches does not depend on the cut.
    """
    order = sorted(range(len(rows)), key=lambda index: (-rows[index].columns, index))
    batches = []
    while order:
        count = max(1, micro_batch_tokens // rows[order[0]].columns)
        chosen, order = order[:count], order[count:]
        batches.append(_collate([rows[index] for index in chosen], tuple(chosen), pad_id, device))
    return batches


def engine_batches(
    engine: TrainEngine, rows: Sequence[TrainRow], micro_batch_tokens: int, pad_id: int
) -> list[MicroBatch]:
    """This rank's rows as micro-batches on the engine's device, as many as on every other rank.

    A rank with fewer, or without any row, is filled up with micro-batches of weight 0, because every rank must call
    ``backward`` equally often.
    """
    batches = micro_batches(rows, micro_batch_tokens, pad_id, engine.device)
    counts = engine.sum_over_ranks([float(len(batches)) * (rank == engine.rank) for rank in range(engine.world_size)])
    empty = TrainRow(np.full(2, pad_id, dtype=np.int64), np.zeros(2), {name: np.zeros(2) for name in _names(rows)})
    missing = int(max(counts)) - len(batches)
    return batches + [_collate([empty], (), pad_id, engine.device) for _ in range(missing)]


def split_over_ranks(rows: Sequence[TrainRow], rank: int, world_size: int) -> list[TrainRow]:
    """Deal the rows out in order of length, so that ranks get like amounts of work; this rank's share."""
    order = sorted(range(len(rows)), key=lambda index: (-rows[index].columns, index))
    return [rows[index] for index in order[rank::world_size]]


def _names(rows: Sequence[TrainRow]) -> list[str]:
    return list(rows[0].signals) if rows else []


def _collate(
    rows: Sequence[TrainRow], row_index: tuple[int, ...], pad_id: int, device: torch.device | str
) -> MicroBatch:
    shape = (len(rows), max(row.columns for row in rows))

    def padded(values: Sequence[npt.NDArray[Any]], fill: int, kind: type) -> torch.Tensor:
        array: npt.NDArray[Any] = np.full(shape, fill, dtype=kind)
        for line, row in zip(array, values, strict=True):
            line[: len(row)] = row
        return torch.from_numpy(array).to(device)

    weights = padded([row.weights[1:] for row in rows], 0, np.float32)
    positions = weights.flatten().nonzero()[:, 0]
    columns = positions % shape[1]
    return MicroBatch(
        input_ids_BT=padded([row.token_ids[:-1] for row in rows], pad_id, np.int64),
        target_ids_BT=padded([row.token_ids[1:] for row in rows], pad_id, np.int64),
        weights_BT=weights,
        signals={name: padded([row.signals[name][1:] for row in rows], 0, np.float32) for name in _names(rows)},
        positions_N=positions,
        first_column=int(columns.min()) if len(columns) else shape[1] - 1,
        row_index=row_index,
    )


def target_logits(model: torch.nn.Module, batch: MicroBatch) -> torch.Tensor:
    """(N, V) float32 logits that score the trained tokens.

    The output layer runs from the first trained column on only: with a large vocabulary the prompts would cost more
    than the body of the model.
    """
    rows, columns = batch.input_ids_BT.shape
    keep = columns - batch.first_column
    logits = model(input_ids=batch.input_ids_BT, use_cache=False, logits_to_keep=keep).logits
    row, column = batch.positions_N // columns, batch.positions_N % columns
    kept: torch.Tensor = logits.reshape(rows * keep, -1).index_select(0, row * keep + column - batch.first_column)
    return kept.float()


def logprobs_of(logits_NV: torch.Tensor, batch: MicroBatch, temperature: float = 1.0) -> torch.Tensor:
    """(N,) log-probability of each trained token under logits / temperature."""
    return -F.cross_entropy(logits_NV / temperature, batch.pick(batch.target_ids_BT), reduction="none")


def target_logprobs(model: torch.nn.Module, batch: MicroBatch, temperature: float = 1.0) -> torch.Tensor:
    """(B, T) log-probability of each trained token under logits / temperature; 0 elsewhere."""
    return batch.spread(logprobs_of(target_logits(model, batch), batch, temperature))

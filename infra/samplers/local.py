"""Sampling from a module in this process: batched, static buffers, finished rows leave the batch.

Axes: B rows of the running batch, S columns of the cache (left-padded prompts, then responses), V vocabulary.

Every draw is the inverse of the cumulative distribution at a uniform number that is addressed by (row's seed, index of
the model token), so it depends on nothing else: not on the batch around it, and no generator state needs saving.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from infra.samplers.cache import BufferCache
from stages.core.ports import SampleRequest, TurnHook
from stages.core.records import MODEL, TOOL, Finish, Sampled

SHRINK_AT = 0.8
"""Finished rows are taken out when the live ones fall to this share of the batch: a copy of the cache has its price."""


@dataclass(slots=True)
class _Row:
    """One response in the making."""

    index: int
    """Position among the requests."""
    request: SampleRequest
    uniforms_T: np.ndarray
    token_ids: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    forced: deque[int] = field(default_factory=deque)
    """Observation tokens still to be fed."""
    turn_start: int = 0
    model_tokens: int = 0
    finish: Finish | None = None

    def append(self, token: int, role: int, logprob: float) -> None:
        self.token_ids.append(token)
        self.roles.append(role)
        self.logprobs.append(logprob)
        self.model_tokens += role == MODEL

    def sampled(self) -> Sampled:
        return Sampled(
            np.asarray(self.token_ids, dtype=np.int64),
            np.asarray(self.roles, dtype=np.int64),
            np.asarray(self.logprobs, dtype=np.float64),
            self.finish or "length",
        )


class LocalSampler:
    """Implements the Sampler port over a live module, whose weights it reads and never changes.

    Args:
        model: a causal language model with full attention.
        vocab_size: ids from here on are padding rows of the output layer and are never sampled.
        eos_ids: every id that ends a response.
        batch_rows: rows decoded side by side.
    """

    def __init__(
        self, model: PreTrainedModel, *, vocab_size: int, eos_ids: frozenset[int], pad_id: int, batch_rows: int = 256
    ) -> None:
        self._model = model
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._pad_id = pad_id
        self._batch_rows = batch_rows

    @torch.no_grad()
    def sample(
        self,
        requests: Sequence[SampleRequest],
        *,
        temperature: float,
        turn_end_ids: frozenset[int] = frozenset(),
        on_turn: TurnHook | None = None,
    ) -> list[Sampled]:
        """See the Sampler port. Rows of like length are decoded together; the order of the result is the requests'."""
        was_training = self._model.training
        self._model.eval()
        rows = [
            _Row(index, request, np.random.Generator(np.random.Philox(key=request.seed)).random(request.max_tokens))
            for index, request in enumerate(requests)
        ]
        by_length = sorted(rows, key=lambda row: (len(row.request.prompt_ids) + row.request.max_tokens, row.index))
        try:
            for start in range(0, len(by_length), self._batch_rows):
                _Decoder(self, by_length[start : start + self._batch_rows], temperature, turn_end_ids, on_turn).run()
        finally:
            self._model.train(was_training)
        return [row.sampled() for row in rows]


class _Decoder:
    """The decoding loop of one batch."""

    def __init__(
        self,
        sampler: LocalSampler,
        rows: list[_Row],
        temperature: float,
        turn_end_ids: frozenset[int],
        on_turn: TurnHook | None,
    ) -> None:
        self._model = sampler._model
        self._vocab_size = sampler._vocab_size
        self._eos_ids = sampler._eos_ids
        self._pad_id = sampler._pad_id
        self._rows = rows
        self._temperature = temperature
        self._turn_end_ids = turn_end_ids
        self._on_turn = on_turn
        self._device = self._model.device
        self._context = int(self._model.config.max_position_embeddings)

    def run(self) -> None:
        prompt_columns = max(len(row.request.prompt_ids) for row in self._rows)
        capacity = prompt_columns + max(row.request.max_tokens for row in self._rows)
        self._cache = BufferCache(self._model.config.num_hidden_layers, capacity)
        input_ids_BS, visible_BS = self._left_padded(prompt_columns)
        positions_BS = (visible_BS.long().cumsum(1) - 1).clamp(min=0)
        causal_SS = torch.ones((prompt_columns, prompt_columns), dtype=torch.bool, device=self._device).tril()
        # A padding query sees itself, so that no row of the softmax is empty.
        eye_SS = torch.eye(prompt_columns, dtype=torch.bool, device=self._device)
        mask = (causal_SS[None] & visible_BS[:, None, :]) | eye_SS[None]
        logits_BV = self._forward(input_ids_BS, positions_BS, mask[:, None])
        self._visible_BS = torch.zeros((len(self._rows), 2 * capacity), dtype=torch.bool, device=self._device)
        self._visible_BS[:, :prompt_columns] = visible_BS
        self._positions_B = positions_BS[:, -1]
        self._columns = prompt_columns
        while True:
            next_ids_B = self._advance(logits_BV)
            live = [slot for slot, row in enumerate(self._rows) if row.finish is None]
            if not live:
                return
            if len(live) <= SHRINK_AT * len(self._rows):
                next_ids_B = self._keep(live, next_ids_B)
            logits_BV = self._step(next_ids_B)

    def _left_padded(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids_BS = np.full((len(self._rows), columns), self._pad_id, dtype=np.int64)
        visible_BS = np.zeros((len(self._rows), columns), dtype=bool)
        for slot, row in enumerate(self._rows):
            prompt = row.request.prompt_ids
            ids_BS[slot, columns - len(prompt) :] = prompt
            visible_BS[slot, columns - len(prompt) :] = True
        return torch.from_numpy(ids_BS).to(self._device), torch.from_numpy(visible_BS).to(self._device)

    def _forward(self, input_ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Logits of the last column, (B, V)."""
        output = self._model(
            input_ids=input_ids,
            position_ids=positions,
            attention_mask=mask,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_BV: torch.Tensor = output.logits[:, -1, : self._vocab_size].float()
        return logits_BV

    def _step(self, next_ids_B: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row; finished rows that are still in the batch are fed too, and not looked at."""
        if self._columns == self._visible_BS.shape[1]:
            self._visible_BS = torch.nn.functional.pad(self._visible_BS, (0, self._columns))
        self._visible_BS[:, self._columns] = True
        self._columns += 1
        self._positions_B = self._positions_B + 1
        mask = self._visible_BS[:, None, None, : self._columns]
        return self._forward(next_ids_B[:, None], self._positions_B[:, None], mask)

    def _keep(self, live: list[int], next_ids_B: torch.Tensor) -> torch.Tensor:
        slots = torch.tensor(live, device=self._device)
        self._cache.keep_rows(slots)
        self._visible_BS = self._visible_BS[slots]
        self._positions_B = self._positions_B[slots]
        self._rows = [self._rows[slot] for slot in live]
        return next_ids_B[slots]

    def _advance(self, logits_BV: torch.Tensor) -> torch.Tensor:
        """Give every live row its next token, sampled or forced; returns what is fed next, (B,)."""
        ids, logprobs = self._draw(logits_BV)
        for slot, row in enumerate(self._rows):
            if row.finish is not None:
                continue
            if row.forced:
                ids[slot] = row.forced.popleft()
                row.append(ids[slot], TOOL, 0.0)
            else:
                row.append(ids[slot], MODEL, logprobs[slot])
                self._after_model_token(row, ids[slot])
            if row.finish is None and len(row.request.prompt_ids) + len(row.token_ids) >= self._context:
                row.finish = "length"
        return torch.tensor(ids, device=self._device)

    def _draw(self, logits_BV: torch.Tensor) -> tuple[list[int], list[float]]:
        """One token per row and its log-probability at the sampling temperature (greedy: at 1)."""
        logprobs_BV = torch.log_softmax(logits_BV / (self._temperature or 1.0), dim=-1)
        if self._temperature == 0:
            ids_B1 = logits_BV.argmax(-1, keepdim=True)
        else:
            uniforms = [row.uniforms_T[min(row.model_tokens, row.request.max_tokens - 1)] for row in self._rows]
            cumulative_BV = logprobs_BV.exp().cumsum(-1)
            # Scaled by the total, which is 1 only up to rounding.
            at_B1 = torch.tensor(uniforms, dtype=torch.float32, device=self._device)[:, None] * cumulative_BV[:, -1:]
            ids_B1 = torch.searchsorted(cumulative_BV, at_B1, right=True).clamp(max=self._vocab_size - 1)
        return ids_B1[:, 0].tolist(), logprobs_BV.gather(1, ids_B1)[:, 0].tolist()

    def _after_model_token(self, row: _Row, token: int) -> None:
        if token in self._eos_ids:
            row.finish = "stop"
        elif row.model_tokens >= row.request.max_tokens:
            row.finish = "length"
        elif token in self._turn_end_ids and self._on_turn is not None:
            observation = self._on_turn(row.index, np.asarray(row.token_ids[row.turn_start :], dtype=np.int64))
            if observation is None:
                row.finish = "length"
            else:
                row.forced.extend(observation)
                row.turn_start = len(row.token_ids) + len(row.forced)

"""A key-value cache in preallocated buffers from which finished rows can be taken out.

transformers' static cache hands the whole buffer to attention at every step, and its dynamic cache copies the past at
every step; here attention sees a view of the filled part.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, shape (rows, heads, capacity, head_dim), filled from the left."""

    is_sliding = False

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads = key_states.shape[:2]
        self.keys = key_states.new_empty((rows, heads, self.capacity, key_states.shape[-1]))
        self.values = value_states.new_empty((rows, heads, self.capacity, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[2]
        if end > self.capacity:
            self._grow(max(end, 2 * self.capacity))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grow(self, capacity: int) -> None:
        """Observations may make a response longer than was planned for."""
        assert self.keys is not None
        assert self.values is not None
        extra = capacity - self.capacity
        self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, extra))
        self.values = torch.nn.functional.pad(self.values, (0, 0, 0, extra))
        self.capacity = capacity

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Keep only these rows, in this order."""
        assert self.keys is not None
        assert self.values is not None
        shape_k, shape_v = self.keys.shape, self.values.shape
        keys = self.keys.new_empty((len(rows), *shape_k[1:]))
        values = self.values.new_empty((len(rows), *shape_v[1:]))
        keys[:, :, : self.length] = self.keys[:, :, : self.length].index_select(0, rows)
        values[:, :, : self.length] = self.values[:, :, : self.length].index_select(0, rows)
        self.keys, self.values = keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


class BufferCache(Cache):
    """One BufferLayer per model layer."""

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[BufferLayer(capacity) for _ in range(layers)])

    def keep_rows(self, rows: torch.Tensor) -> None:
        for layer in self.layers:
            layer.keep_rows(rows)

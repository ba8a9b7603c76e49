"""Which items a step trains on: a pure function of seed and step, so a resumed run draws the same."""

from __future__ import annotations

import numpy as np

from stages.core.keys import derive_seed
from stages.core.records import IntArray


def epoch_draw(count: int, start: int, size: int, seed: int) -> IntArray:
    """Indices ``start .. start + size`` of an endless walk that visits all ``count`` items once per epoch.

    Args:
        count: number of items, >= 1.
        start: how many draws came before.
        seed: decides every epoch's order.

    Returns:
        (size,) indices in [0, count).
    """
    epochs = range(start // count, (start + size - 1) // count + 1)
    walk = np.concatenate(
        [np.random.default_rng(derive_seed(seed, "epoch", epoch)).permutation(count) for epoch in epochs]
    )
    offset = start - epochs.start * count
    return walk[offset : offset + size]

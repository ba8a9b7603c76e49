"""Whether the student can tell the efforts apart at all, and fresh directions for their words where it cannot.

Departure from the sources: none of them reports this. A cold start that never had to tell the effort words apart leaves
their embeddings nearly parallel (cosine .94 measured), and distillation then cannot pull the tiers apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from stages.core.keys import derive_seed

PARALLEL = 0.9
NORM_FACTOR = 1.5
"""Norm of a fresh direction over the mean norm of the words that the prompts use."""


def largest_cosine(embedding_VD: torch.Tensor, effort_ids: Mapping[str, tuple[int, ...]]) -> float:
    """Largest cosine between the mean embeddings of any two efforts; -1 where there are fewer than two."""
    means = [embedding_VD[list(ids)].mean(0) for ids in effort_ids.values() if ids]
    if len(means) < 2:
        return -1.0
    unit_ED = torch.nn.functional.normalize(torch.stack(means).float(), dim=-1)
    cosines = unit_ED @ unit_ED.T
    return float(cosines[~torch.eye(len(means), dtype=torch.bool)].max())


@torch.no_grad()
def refresh(
    embedding_VD: torch.Tensor, effort_ids: Mapping[str, tuple[int, ...]], prompt_ids: Iterable[int], seed: int
) -> None:
    """Give every effort word a random direction, in place.

    Args:
        prompt_ids: ids that occur in prompts: their mean norm sets the scale.
    """
    used = sorted(set(prompt_ids))
    norm = embedding_VD[used].float().norm(dim=-1).mean() * NORM_FACTOR
    generator = torch.Generator().manual_seed(derive_seed(seed, "effort-embeddings"))
    for effort in sorted(effort_ids):
        for token in effort_ids[effort]:
            direction = torch.randn(embedding_VD.shape[1], generator=generator)
            embedding_VD[token] = (direction / direction.norm() * norm.cpu()).to(embedding_VD)

"""Weight merging (methods, section 8). No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.core.config import Config
from stages.tasks.config import CellConfig, PromptConfig


class MergeConfig(Config):
    type: Literal["merge"]
    method: Literal["linear"] = "linear"
    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each specialist by ``domain.effort``; 1 where not named."""
    normalize: bool = True
    """Divide by the sum of the weights."""


class MergeJob(Config):
    """Inputs: ``model`` (the cold start), ``teacher.<domain>.<effort>`` folders. Output: a model folder."""

    merge: MergeConfig
    cells: tuple[CellConfig, ...]
    prompt: PromptConfig

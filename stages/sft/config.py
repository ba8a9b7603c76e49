"""Cold start on demonstrations. No torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stages.core.config import Config
from stages.tasks.config import PromptConfig
from stages.train.config import BaseModelConfig, BatchConfig, OptimizerConfig


class SFTConfig(Config):
    steps: int = Field(600, ge=1)
    """Optimiser steps."""
    batch_rows: int = Field(96, ge=1)
    """Demonstrations of one step."""
    domain_weights: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Relative share of a domain's rows; 1 where not named."""
    domains: tuple[str, ...] | None = None
    """Domains whose demonstrations are used; None: all. Name them to add a domain later without a new cold start."""
    effort_words: tuple[str, ...] = ("low", "high", "max")
    """Efforts that the random messages name; kept apart from the tiers so that a new tier costs no new cold start."""
    random_effort_share: float = Field(0.5, ge=0, le=1)
    """Share of rows that carry a random effort message, so that prompts with and without one are both known."""
    optimizer: OptimizerConfig = OptimizerConfig(type="muon", lr=4e-3, muon_lr=0.02, warmup_steps=30, schedule="cosine")
    batch: BatchConfig = BatchConfig()


class SFTJob(Config):
    """Inputs: ``demonstrations.<domain>`` files. Output: a model folder."""

    base: BaseModelConfig
    sft: SFTConfig
    prompt: PromptConfig
    domains: tuple[str, ...]

"""Multi-teacher on-policy distillation (methods, section 7). No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.core.config import Config
from stages.tasks.config import CellConfig, DomainConfig, PromptConfig
from stages.train.config import BatchConfig, OptimizerConfig


class WarmStart(Config):
    """A short SFT on effort-tagged specialist rollouts before distillation."""

    rollouts_per_cell: int = Field(40, ge=1)
    """Rollouts sampled from each specialist; all finished ones are kept, right or wrong."""
    steps: int = Field(60, ge=1)
    batch_rows: int = Field(48, ge=1)
    lr: float = Field(2e-3, gt=0)
    """Constant learning rate of these steps; the optimiser and its state are those of the distillation."""


class Balance(Config):
    """Weights of the (domain, effort) cells, so that a token mean is not a max-tier loss."""

    target: Literal["uniform", "tokens"] = "uniform"
    """``uniform``: every cell the same share of the loss; ``tokens``: as many as its tokens."""
    gap_exponent: float = Field(1.0, ge=0)
    """a: a cell's weight follows (its mean KL per token / the mean over cells)^a; 0 turns it off."""


class DistillConfig(Config):
    type: Literal["distill"] = "distill"
    mode: Literal["full", "sampled"] = "full"
    """``full``: reverse KL over the whole vocabulary; ``sampled``: clipped log-ratio of the sampled tokens."""
    steps: int = Field(60, ge=1)
    rollouts_per_cell: int = Field(10, ge=1)
    """Student rollouts of each cell in each step."""
    temperature: float = Field(1.0, gt=0)
    r_max: float = Field(5.0, gt=0)
    """``sampled``: the token advantage is clipped to +-r_max."""
    fresh_effort_embeddings: Literal["auto", "always", "never"] = "auto"
    """New random directions for the effort words; ``auto``: where any two of them have a cosine above 0.9."""
    warm_start: WarmStart | None = WarmStart()
    balance: Balance = Balance()
    initial_kl_alarm: float = Field(0.1, gt=0)
    """Mean KL per token at the first step above which an alarm is raised."""
    optimizer: OptimizerConfig = OptimizerConfig(lr=2e-3, warmup_steps=5, schedule="cosine", min_lr_ratio=0.1)
    batch: BatchConfig = BatchConfig()


class DistillJob(Config):
    """Inputs: ``model`` (the cold start), ``teacher.<domain>.<effort>`` folders, ``problems.<domain>`` files.
    Output: a model folder whose chat template takes every effort."""

    distill: DistillConfig
    cells: tuple[CellConfig, ...]
    conditioned_teachers: bool
    """Whether a teacher's prompt carries the effort message."""
    specs: dict[str, DomainConfig]
    prompt: PromptConfig

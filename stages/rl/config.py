"""One specialist: a domain at an effort. No torch."""

from __future__ import annotations

from pydantic import Field

from stages.core.config import Config
from stages.rewards.config import (
    BudgetOverride,
    CollapseWatch,
    CreditConfig,
    Gate,
    LossConfig,
    ShapeConfig,
    TauAnnealing,
    WarmupConfig,
)
from stages.tasks.config import DomainConfig, PromptConfig
from stages.train.config import BatchConfig, OptimizerConfig


class RLConfig(Config):
    steps: int = Field(40, ge=1)
    """Optimiser steps; one batch of fresh rollouts each."""
    problems_per_step: int = Field(16, ge=1)
    rollouts: int = Field(8, ge=2)
    """K: rollouts of one problem in one step, the group."""
    temperature: float = Field(1.0, gt=0)
    shape: ShapeConfig = BudgetOverride()
    gate: Gate = "reachable"
    warmup: WarmupConfig = WarmupConfig()
    annealing: TauAnnealing = TauAnnealing()
    credit: CreditConfig = CreditConfig()
    loss: LossConfig = LossConfig()
    collapse: CollapseWatch = CollapseWatch()
    max_unscored_share: float = Field(0.05, ge=0, le=1)
    """The stage fails above this share of rollouts that could not be scored."""
    optimizer: OptimizerConfig = OptimizerConfig(lr=5e-4)
    batch: BatchConfig = BatchConfig()


class RLJob(Config):
    """Inputs: ``model`` (cold start or parent tier), ``budget``, ``problems`` file. Output: a model folder."""

    rl: RLConfig
    domain: str
    effort: str
    tau: float = Field(gt=0)
    """The cell's own budget multiplier, dimensionless."""
    tau_start: float = Field(gt=0)
    """Where annealing starts; equal to ``tau`` where there is none."""
    conditioned: bool
    """Whether the prompts carry the effort message."""
    spec: DomainConfig
    prompt: PromptConfig

"""Per-problem token budgets from the cold start (methods, section 3). No torch."""

from __future__ import annotations

from pydantic import Field

from stages.core.config import Config
from stages.tasks.config import DomainConfig, PromptConfig


class BudgetConfig(Config):
    problems: int = Field(192, ge=1)
    """How many training problems of the domain get a budget, drawn by seed; RL trains on these."""
    rollouts: int = Field(12, ge=1)
    """K: cold-start rollouts of each problem."""
    percentile: float = Field(50.0, ge=0, le=100)
    """rho: b0 is this percentile of the counted tokens of the correct, finished rollouts."""
    floor_tokens: float = Field(1.0, ge=0)
    """No b0 falls below this."""
    temperature: float = Field(1.0, gt=0)
    max_unscored_share: float = Field(0.05, ge=0, le=1)
    """The stage fails above this share of rollouts that could not be scored."""


class BudgetJob(Config):
    """Inputs: ``model`` folder, ``problems`` file. Output: ``budgets.parquet``, ``rollouts.jsonl``."""

    budget: BudgetConfig
    domain: str
    spec: DomainConfig
    prompt: PromptConfig

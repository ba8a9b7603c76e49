"""Promotion: the gates a candidate is judged by, and the folder it is exported to (methods, section 10). No torch."""

from __future__ import annotations

from pydantic import Field

from stages.core.config import Config
from stages.tasks.config import PromptConfig


class GatesConfig(Config):
    """Each a number, each shown passed or failed; None turns a gate off."""

    min_fold: float | None = Field(1.15, gt=0)
    """Lower end of the 95% interval of the fold in mean tokens between adjacent tiers, in every domain."""
    max_accuracy_drop_points: float | None = Field(3.0, ge=0)
    """Accuracy may not fall by more than this from a tier to the next higher one, in any domain."""
    student_within_points: float | None = Field(6.0, ge=0)
    """No cell of the student more than this below its teacher in accuracy."""
    token_ratio: tuple[float, float] | None = (0.8, 1.25)
    """Band of mean tokens student / teacher in every cell."""
    max_truncated_share: float | None = Field(0.05, ge=0, le=1)
    """Share of truncated responses in any cell of the student."""


class PromoteConfig(Config):
    gates: GatesConfig = GatesConfig()
    model_name: str = "ninefold"
    """Registered model that the candidate becomes a version of."""
    alias: str = "champion"
    """Alias that moves to the version if every gate holds."""


class PromoteJob(Config):
    """Inputs: ``model`` (the student), ``summary``. Output: ``model/`` ready to serve, with its model card, and
    ``gates.json``."""

    promote: PromoteConfig
    domains: tuple[str, ...]
    efforts: tuple[str, ...]
    caps: dict[str, int]
    """Token cap by domain, under which every tier was trained: the exported context must hold it."""
    prompt: PromptConfig

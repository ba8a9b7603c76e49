"""Measuring the knob (methods, section 10). No torch."""

from __future__ import annotations

from pydantic import Field

from stages.core.config import UNKEYED, Config
from stages.tasks.config import CellConfig, DomainConfig, PromptConfig


class EvaluateConfig(Config):
    problems: int = Field(512, ge=1)
    """Held-out problems of each domain, the first ones of the file; all where it has fewer."""
    samples: int = Field(1, ge=1)
    """Responses to each problem."""
    temperature: float = Field(1.0, ge=0)
    """0: greedy."""
    bootstrap: int = Field(2000, ge=100)
    """Resamples of the problems behind each 95% interval."""
    max_unscored_share: float = Field(0.05, ge=0, le=1)


class EvaluateJob(Config):
    """One checkpoint on its cells. Inputs: ``model``, ``heldout.<domain>`` files. Output: ``rows.jsonl``, one line a
    response, and ``metrics.json``."""

    evaluate: EvaluateConfig
    subject: str = Field(json_schema_extra=UNKEYED)
    """``cold_start``, ``student`` or a specialist's ``domain.effort``; a label in the outputs."""
    cells: tuple[CellConfig, ...]
    conditioned: bool
    """Whether the prompts carry the effort message."""
    specs: dict[str, DomainConfig]
    prompt: PromptConfig


class SummaryJob(Config):
    """All checkpoints side by side.

    Inputs: ``evaluation.<subject>``, ``training.<node>``, ``budget.<domain>`` artifacts.
    Output: ``comparison.json``, ``report.html``."""

    domains: tuple[str, ...]
    efforts: tuple[str, ...]
    """In ascending order."""
    tau: dict[str, dict[str, float]]
    """By domain, then effort."""
    caps: dict[str, int]
    """Token cap by domain."""
    bootstrap: int
    student: str
    """Name of the consolidation, e.g. ``distill``."""
    title: str = Field(json_schema_extra=UNKEYED)

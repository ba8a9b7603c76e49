"""Responses of a checkpoint for a person to read. No torch."""

from __future__ import annotations

from pydantic import Field

from stages.core.config import Config
from stages.tasks.config import DomainConfig, PromptConfig


class GenerateJob(Config):
    """Inputs: ``model``; ``heldout``, a file of problems, where no prompts are given. Output: ``responses.jsonl``, one
    line a response."""

    prompts: tuple[str, ...] = ()
    """What to ask; none: the first held-out problems, whose answers are then verified."""
    problems: int = Field(3, ge=1)
    """How many of the held-out problems."""
    domain: str | None = None
    """Whose environment answers and whose tokens are counted; None: one turn, the thinking span counts."""
    spec: DomainConfig | None = None
    """Of the domain; set together with it."""
    effort: str | None = None
    """None: the chat template's default."""
    samples: int = Field(1, ge=1)
    """Responses to each prompt."""
    temperature: float = Field(1.0, ge=0)
    """0: greedy."""
    max_tokens: int | None = Field(None, ge=1)
    """Cap on the model tokens of one response; None: the domain's, else what the context leaves, within reason."""
    prompt: PromptConfig

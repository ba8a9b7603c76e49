"""Configs of domains: their files, verifier, environment; and of the effort message. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.core.config import UNKEYED, Config


class ExactVerifier(Config):
    """The answer equals the reference after stripping white space."""

    type: Literal["exact"] = "exact"


class CodeVerifier(Config):
    """The answer is a program; each of the problem's ``tests`` ([argument, expected] pairs) is executed."""

    type: Literal["code"]
    entry: str = "solve"
    """Name of the function that the tests call with one argument."""
    template: str = "{answer}"
    """Program text around the answer, e.g. a function header for answers that are bodies."""
    timeout_s: float = Field(2.0, gt=0)
    memory_mb: int = Field(512, ge=64)


VerifierConfig = Annotated[ExactVerifier | CodeVerifier, Field(discriminator="type")]


class CalculatorEnvironment(Config):
    """The micro agent's tool: computes one step of a chain, wrongly now and then; its check call is exact."""

    type: Literal["calculator"]
    error_rate: float = Field(0.05, ge=0, le=1)
    """Probability that a plain call returns a uniformly wrong digit."""
    max_turns: int = Field(16, ge=1)
    """Tool calls after which the response ends, truncated."""


EnvironmentConfig = CalculatorEnvironment


class DomainConfig(Config):
    problems: str = Field(json_schema_extra=UNKEYED)
    """JSONL of training problems: id, prompt, answer, and what the verifier needs."""
    heldout: str = Field(json_schema_extra=UNKEYED)
    """JSONL of held-out problems."""
    demonstrations: str = Field(json_schema_extra=UNKEYED)
    """JSONL of demonstrations for the cold start: id, prompt, response."""
    verifier: VerifierConfig = ExactVerifier()
    environment: EnvironmentConfig | None = None
    success_threshold: float = Field(1.0, gt=0, le=1)
    """A rollout is correct at this raw reward or above."""
    counting: Literal["thinking", "cumulative"] = "thinking"
    """T(y): tokens inside the thinking span, or all model output over all turns (agentic domains)."""
    cap_tokens: int = Field(128, ge=1)
    """Hard cap on the model tokens of one response, in every stage."""


class EffortMessage(Config):
    """How the effort is said; one renderer for training, evaluation and serving: the checkpoint's chat template."""

    form: Literal["option", "mode_token"] = "option"
    """``option``: a message before all others; ``mode_token``: one token before all messages."""
    default: str | None = None
    """Effort of a serving request that names none; None: no message."""


class ThinkingTags(Config):
    """Tokens around the thinking span."""

    open: str = "<think>"
    close: str = "</think>"

    @model_validator(mode="after")
    def _differ(self) -> ThinkingTags:
        if self.open == self.close:
            raise ValueError("two different tags")
        return self


class PromptConfig(Config):
    """What the one renderer needs."""

    efforts: tuple[str, ...] = ()
    """Efforts that the chat template accepts, in ascending order; any other is an error."""
    message: EffortMessage = EffortMessage()
    tags: ThinkingTags = ThinkingTags()


class CellConfig(Config):
    """One cell of domain x effort."""

    domain: str
    effort: str | None
    """None: no effort message."""

    @property
    def name(self) -> str:
        return f"{self.domain}.{self.effort}" if self.effort else self.domain

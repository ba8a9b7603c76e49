"""A checkpoint opened for sampling: model, tokenizer, renderer, sampler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stages.core.context import StageContext
from stages.core.ports import Sampler
from stages.tasks.config import PromptConfig
from stages.tasks.prompts import Renderer
from stages.train.model import load_model, load_tokenizer


@dataclass(frozen=True, slots=True)
class Policy:
    """A model that answers."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    sampler: Sampler


def load_policy(folder: Path, prompt: PromptConfig, context: StageContext) -> Policy:
    """Open a model folder on the context's device."""
    tokenizer = load_tokenizer(folder)
    return policy_of(load_model(folder, context.device), tokenizer, prompt, context)


def policy_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: PromptConfig, context: StageContext
) -> Policy:
    """A policy over a live model."""
    return Policy(model, tokenizer, Renderer(tokenizer, prompt), context.ports.sampler(model, tokenizer))

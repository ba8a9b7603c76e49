"""Configs shared by every training stage: the base model, the optimiser and how batches are laid out. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.core.config import UNKEYED, Config


class MicroBase(Config):
    """A Qwen3-shaped model made from a seed, with a word-level tokenizer made from the demonstrations and problems."""

    type: Literal["micro"] = "micro"
    hidden: int = Field(96, ge=8)
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    kv_heads: int = Field(2, ge=1)
    intermediate: int = Field(288, ge=8)
    rope_theta: float = Field(1000.0, gt=0)
    context: int = Field(256, ge=16)
    """Longest prompt plus response, in tokens."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of the initial weights."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights, in memory and in files, in every stage."""

    @model_validator(mode="after")
    def _fits(self) -> MicroBase:
        if self.hidden % (2 * self.heads) or self.heads % self.kv_heads:
            raise ValueError("hidden a multiple of twice the heads (rotary halves), heads a multiple of kv_heads")
        return self


class PretrainedBase(Config):
    """A causal language model in transformers' format."""

    type: Literal["hf"]
    path: str
    """A folder, or a hub name where the machine can reach the hub."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the weights, in memory and in files, in every stage."""


BaseModelConfig = Annotated[MicroBase | PretrainedBase, Field(discriminator="type")]


class OptimizerConfig(Config):
    """Optimiser and learning-rate schedule, over optimiser steps."""

    type: Literal["adamw", "muon"] = "adamw"
    """``muon``: torch.optim.Muon on the matrices inside the blocks, AdamW on the rest; single-process engine only."""
    lr: float = Field(5e-4, gt=0)
    """Peak learning rate of AdamW."""
    muon_lr: float = Field(0.02, gt=0)
    """Peak learning rate of Muon, where it is on."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.0, ge=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    min_lr_ratio: float = Field(0.05, ge=0, le=1)
    """Where the cosine ends, as a share of the peak."""
    clip_norm: float = Field(1.0, gt=0)
    """Gradient norm is clipped to this."""


class BatchConfig(Config):
    """How a step's rows are cut into micro-batches: sorted by length, filled up to a number of padded tokens."""

    micro_batch_tokens: int = Field(4096, ge=1, json_schema_extra=UNKEYED)
    """Padded tokens of one forward pass; memory, not the result, depends on it."""

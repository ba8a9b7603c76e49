"""What an engine reads of an optimiser's config, and which parameter goes to which optimiser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import nn
from transformers import PreTrainedModel


class OptimizerFields(Protocol):
    """The fields of the optimiser's config that an engine needs; their meaning is described there."""

    @property
    def type(self) -> str: ...
    @property
    def lr(self) -> float: ...
    @property
    def muon_lr(self) -> float: ...
    @property
    def betas(self) -> tuple[float, float]: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip_norm(self) -> float: ...


def adamw_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices decay, norms and biases do not."""
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for parameter in parameters:
        (matrices if parameter.ndim >= 2 else vectors).append(parameter)
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def muon_names(model: PreTrainedModel) -> set[str]:
    """Names of the matrices inside the blocks: every 2-D parameter but embeddings and the output layer."""
    outside = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    head = model.get_output_embeddings()
    if head is not None:
        outside.add(id(head.weight))
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.ndim == 2 and id(parameter) not in outside
    }


def set_scale(optimizer: torch.optim.Optimizer, peak: float, scale: float) -> None:
    """Every group of ``optimizer`` at ``scale`` times its peak learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = peak * scale

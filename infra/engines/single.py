"""One process, one device: AdamW, or Muon on the matrices inside the blocks and AdamW on the rest.

Weights of lower precision than float32 are trained through float32 masters: an update of a small learning rate is below
the resolution of bfloat16 and would round to nothing. Gradients add up in float32 too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model
from torch import nn
from transformers import PreTrainedModel

from infra.engines.optimizer import OptimizerFields, adamw_groups, muon_names, set_scale
from infra.engines.stamp import check_stamp, write_stamp
from stages.core.ports import StepStats

WEIGHTS = "weights.safetensors"
OPTIMIZERS = "optimizers.pt"


class SingleEngine:
    """Implements the TrainEngine port."""

    rank = 0
    world_size = 1

    def __init__(self, model: PreTrainedModel, config: OptimizerFields, device: str) -> None:
        self.model = model
        self.device = torch.device(device)
        self._clip_norm = config.clip_norm
        self._lr = config.lr
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._weights = list(trained.values())
        masters = {name: _master(value) for name, value in trained.items()}
        self._masters = list(masters.values())
        muon = muon_names(model) if config.type == "muon" else set()
        rest = [master for name, master in masters.items() if name not in muon]
        adamw = torch.optim.AdamW(adamw_groups(rest, config.weight_decay), lr=config.lr, betas=config.betas)
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [(adamw, config.lr)]
        if muon:
            matrices = [master for name, master in masters.items() if name in muon]
            optimizer = torch.optim.Muon(matrices, lr=config.muon_lr, weight_decay=config.weight_decay)
            self._optimizers.append((optimizer, config.muon_lr))
        self._stamp = {"engine": "single", "optimizer": config.type}
        self._loss_sum = torch.zeros((), device=self.device)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        self._loss_sum += loss.detach()
        for weight, master in zip(self._weights, self._masters, strict=True):
            if master is not weight and weight.grad is not None:
                gradient = weight.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                weight.grad = None

    def step(self, scale: float) -> StepStats:
        norm = nn.utils.clip_grad_norm_(self._masters, self._clip_norm)
        finite = bool(torch.isfinite(norm + self._loss_sum))
        if finite:
            for optimizer, peak in self._optimizers:
                set_scale(optimizer, peak, scale)
                optimizer.step()
            self._copy_masters()
        for master in self._masters:
            master.grad = None
        self._loss_sum.zero_()
        return StepStats(grad_norm=float(norm), skipped=not finite, learning_rate=self._lr * scale)

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]

    def save_state(self, folder: Path) -> None:
        write_stamp(folder, self._stamp)
        save_model(self.model, str(folder / WEIGHTS))
        masters = [None if master is weight else master for weight, master in self._pairs()]
        states = [optimizer.state_dict() for optimizer, _ in self._optimizers]
        torch.save({"optimizers": states, "masters": masters}, folder / OPTIMIZERS)

    def load_state(self, folder: Path) -> None:
        check_stamp(folder, self._stamp)
        load_model(self.model, folder / WEIGHTS, device=str(self.device))
        saved = torch.load(folder / OPTIMIZERS, map_location=self.device, weights_only=True)
        for (optimizer, _), state in zip(self._optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        with torch.no_grad():
            for master, value in zip(self._masters, saved["masters"], strict=True):
                if value is not None:
                    master.copy_(value)

    def save_weights(self, folder: Path) -> None:
        self.model.save_pretrained(folder)

    def _pairs(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        return list(zip(self._weights, self._masters, strict=True))

    @torch.no_grad()
    def _copy_masters(self) -> None:
        for weight, master in self._pairs():
            if master is not weight:
                weight.copy_(master)


def _master(weight: nn.Parameter) -> nn.Parameter:
    """The weight itself where it is float32, else a float32 copy."""
    return weight if weight.dtype == torch.float32 else nn.Parameter(weight.detach().float())

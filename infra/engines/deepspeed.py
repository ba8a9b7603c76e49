"""Several processes: DeepSpeed ZeRO 0 to 3 through accelerate, with torch's AdamW.

DeepSpeed averages gradients over ranks where the port asks for their sum, so losses are scaled by the number of ranks.
It compiles two C++ extensions unless told not to: its own AdamW (torch's is used instead) and, on CPU, a shared-memory
transport (gloo is used instead).
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from infra.engines.optimizer import OptimizerFields, adamw_groups, set_scale
from infra.engines.stamp import check_stamp, write_stamp
from stages.core.errors import ConfigError
from stages.core.ports import StepStats

TAG = "state"
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The process group of a process that was started alone."""


class DeepSpeedEngine:
    """Implements the TrainEngine port; every rank makes one.

    Raises:
        ConfigError: Muon, whose orthogonalisation needs whole matrices where ZeRO holds flat shares.
    """

    def __init__(self, model: PreTrainedModel, config: OptimizerFields, device: str, *, zero_stage: int) -> None:
        if config.type != "adamw":
            raise ConfigError(
                "optimizer.type", got=config.type, expected="adamw under engine 'deepspeed'", fix="set adamw"
            )
        self._lr = config.lr
        accelerator = _accelerator(model, config, device, zero_stage)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(adamw_groups(parameters, config.weight_decay), lr=config.lr, betas=config.betas)
        self._engine, _ = accelerator.prepare(model, optimizer)
        self._accelerator = accelerator
        self.device = torch.device(device)
        self.rank = int(accelerator.process_index)
        self.world_size = int(accelerator.num_processes)
        self._weights = parameters
        self._plain = zero_stage == 0 and model.dtype != torch.bfloat16
        self._stamp = {"engine": "deepspeed", "zero_stage": zero_stage, "processes": self.world_size}
        self.model = cast(torch.nn.Module, _Front(self._engine, sampled=zero_stage < 3 or self.world_size == 1))
        self._loss_sum = torch.zeros((), device=self.device)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self._loss_sum += loss.detach()
        scale = float(self.world_size)
        if last:
            # One loss that is not finite spoils the gradient of every rank, which DeepSpeed then discards as a whole.
            (bad,) = self.sum_over_ranks([float(not torch.isfinite(self._loss_sum))])
            scale = math.nan if bad else scale
            self._loss_sum.zero_()
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * scale)

    def step(self, scale: float) -> StepStats:
        set_scale(self._engine.optimizer, self._lr, scale)
        if self._plain:
            norm, skipped = self._plain_step()
        else:
            self._engine.step()
            norm, skipped = float(self._engine.get_global_grad_norm()), not self._engine.was_step_applied()
        return StepStats(grad_norm=norm, skipped=skipped, learning_rate=self._lr * scale)

    def _plain_step(self) -> tuple[float, bool]:
        """Without ZeRO and in float32 DeepSpeed neither reports the norm nor discards a bad gradient."""
        norm = float(torch.nn.utils.get_total_norm([value.grad for value in self._weights if value.grad is not None]))
        if math.isfinite(norm):
            self._engine.step()
        else:
            self._engine.zero_grad()
        return norm, not math.isfinite(norm)

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return [float(value) for value in total.tolist()]

    def save_state(self, folder: Path) -> None:
        if self.rank == 0:
            write_stamp(folder, self._stamp)
        self._engine.save_checkpoint(str(folder), tag=TAG, save_latest=False)

    def load_state(self, folder: Path) -> None:
        check_stamp(folder, self._stamp)
        # Always with the optimiser's state: without it ZeRO-3 reads the weights of another checkpoint.
        self._engine.load_checkpoint(str(folder), tag=TAG, load_optimizer_states=True, load_lr_scheduler_states=False)

    def save_weights(self, folder: Path) -> None:
        weights = self._accelerator.get_state_dict(self._engine)
        if self.rank == 0:
            model = self._engine.module
            every, once = (dict(model.named_parameters(remove_duplicate=flag)) for flag in (False, True))
            tied = every.keys() - once.keys()  # the gathered copies no longer show that they are one tensor
            kept = {name: value for name, value in weights.items() if name not in tied}
            model.save_pretrained(folder, state_dict=kept)


class _Front:
    """The model as others see it: calls go through DeepSpeed, attributes are the model's own."""

    def __init__(self, engine: Any, sampled: bool) -> None:
        self._engine = engine
        self._sampled = sampled

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not self._sampled and not torch.is_grad_enabled():
            raise ConfigError(
                "resources.zero_stage",
                got="3 for a stage that samples from the model in training",
                expected="at most 2: ranks would wait for each other's weights at every token",
                fix="set resources.zero_stage to 2",
            )
        return self._engine(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine.module, name)


def _accelerator(model: PreTrainedModel, config: OptimizerFields, device: str, zero_stage: int) -> Any:
    """An Accelerator in a process group that torchrun's environment variables describe."""
    if device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    # Said once per collective: two functions of torch that DeepSpeed has yet to follow to their new names.
    warnings.filterwarnings("ignore", category=FutureWarning, message=".*(all_gather_into|reduce_scatter)_tensor")
    import accelerate
    from deepspeed import ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    if device == "cpu":
        ops.__compatible_ops__["deepspeed_shm_comm"] = False
    half = model.dtype == torch.bfloat16
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.clip_norm,
        "bf16": {"enabled": half},
        "zero_optimization": {"stage": zero_stage, "stage3_gather_16bit_weights_on_model_save": True},
        "steps_per_print": 2**31 - 1,
    }
    plugin = accelerate.DeepSpeedPlugin(hf_ds_config=settings, zero3_init_flag=False)
    # Told "cpu" accelerate forgets DeepSpeed; told the transport it does not.
    transport = accelerate.InitProcessGroupKwargs(backend="gloo" if device == "cpu" else "nccl")
    return accelerate.Accelerator(
        mixed_precision="bf16" if half else "no", deepspeed_plugin=plugin, kwargs_handlers=[transport]
    )

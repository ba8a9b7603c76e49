"""Train engines: a model and its optimiser behind the TrainEngine port."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from infra.engines.optimizer import OptimizerFields
from stages.core.errors import ConfigError
from stages.core.ports import TrainEngine


def build(resources: Mapping[str, Any], device: str, model: PreTrainedModel, config: OptimizerFields) -> TrainEngine:
    """The engine that ``resources`` names.

    Args:
        resources: ``engine`` (``single`` or ``deepspeed``) and, for the latter, ``zero_stage``.

    Raises:
        ConfigError: a setting that the engine does not have.
    """
    # Late imports: deepspeed takes seconds to import, and is an optional dependency.
    if resources["engine"] == "deepspeed":
        from infra.engines.deepspeed import DeepSpeedEngine

        return DeepSpeedEngine(model, config, device, zero_stage=resources["zero_stage"])
    from infra.engines.single import SingleEngine

    processes = os.environ.get("WORLD_SIZE", "1")
    if processes != "1":
        raise ConfigError("resources.processes", got=processes, expected="1 under engine 'single'", fix="use deepspeed")
    return SingleEngine(model, config, device)

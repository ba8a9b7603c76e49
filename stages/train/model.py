"""Model folders: made from a seed, loaded, and saved so that plain transformers loads them.

Models stay in evaluation mode in training too: dropout would make the trained policy differ from the sampled one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from stages.core.errors import DataError, StageFailed
from stages.core.ports import TrainEngine
from stages.train.config import MicroBase


def create_micro(
    base: MicroBase, vocab_size: int, eos_id: int, pad_id: int, seed: int, device: str
) -> Qwen3ForCausalLM:
    """A Qwen3-shaped model (QK-norm, tied embeddings) that ``seed`` alone decides; the global generator stays."""
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=base.hidden,
        intermediate_size=base.intermediate,
        num_hidden_layers=base.layers,
        num_attention_heads=base.heads,
        num_key_value_heads=base.kv_heads,
        head_dim=base.hidden // base.heads,
        max_position_embeddings=base.context,
        rope_parameters={"rope_type": "default", "rope_theta": base.rope_theta},
        initializer_range=base.init_std,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model.to(device=device, dtype=getattr(torch, base.dtype)).eval()


def load_model(folder: Path | str, device: str, dtype: str = "auto", revision: str | None = None) -> PreTrainedModel:
    """A causal language model in evaluation mode.

    Args:
        folder: a model folder, or a hub name where the machine can reach the hub.
        dtype: ``auto`` keeps the dtype of the files.

    Raises:
        DataError: no model there, or one whose files lack weights.
    """
    _quiet()
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, revision=revision, output_loading_info=True
        )
    except (OSError, ValueError) as error:
        raise DataError(str(folder), got=str(error), expected="a causal language model", fix="check the path") from None
    for name in info["missing_keys"]:
        raise DataError(str(folder), got=f"no weights for {name}", expected="every weight of the model")
    return model.to(device).eval()


def load_tokenizer(folder: Path | str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Raises:
    DataError: no tokenizer there.
    """
    _quiet()
    try:
        return AutoTokenizer.from_pretrained(folder, revision=revision)
    except (OSError, ValueError) as error:
        raise DataError(str(folder), got=str(error), expected="a tokenizer", fix="check the path") from None


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write weights (safetensors), config, generation config and tokenizer with its chat template.

    Raises:
        StageFailed: a weight is NaN or infinite; nothing is written.
    """
    _quiet()
    _check_finite(model.state_dict().items(), folder)
    _name_endings(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_trained(engine: TrainEngine, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """``save_model`` for a model under training, whose weights may be spread over ranks; every rank calls it.

    Raises:
        StageFailed: a weight is NaN or infinite.
    """
    _quiet()
    _name_endings(engine.model, tokenizer)
    engine.save_weights(folder)
    if engine.rank == 0:
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as tensors:
                _check_finite(((name, tensors.get_tensor(name)) for name in tensors.keys()), folder)  # noqa: SIM118
        tokenizer.save_pretrained(folder)


def _check_finite(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> None:
    for name, tensor in tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise StageFailed(
                f"{folder}: {name}", got="NaN or infinity", expected="finite weights", fix="lower the learning rate"
            )


def _name_endings(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Every id that ends a response and the padding id, in the generation config that is saved with the weights."""
    config = model.generation_config
    known = config.eos_token_id
    known = known if isinstance(known, list) else [known]
    config.eos_token_id = sorted({number for number in [*known, tokenizer.eos_token_id] if number is not None})
    config.pad_token_id = tokenizer.pad_token_id


def _quiet() -> None:
    """What transformers says while loading and saving is either repeated by our errors or of no use to a user."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()

"""Teachers, one at a time: a single module whose weights are replaced by those of the cell at hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stages.core.errors import DataError
from stages.train.model import load_model, load_tokenizer


class Teachers:
    """Frozen specialists by cell name ``domain.effort``; memory does not grow with their number.

    Args:
        folders: model folder of every cell.
        student: the tokenizer that every teacher's must equal, token for token.

    Raises:
        DataError: a teacher's tokenizer or shape differs; names the first difference.
    """

    def __init__(self, folders: Mapping[str, Path], student: PreTrainedTokenizerBase, device: str) -> None:
        self._folders = dict(folders)
        for cell, folder in self._folders.items():
            check_same_tokens(cell, student, load_tokenizer(folder))
        self._device = device
        self._module: PreTrainedModel | None = None
        self._current: str | None = None

    def model(self, cell: str) -> PreTrainedModel:
        """The teacher of ``cell``, in evaluation mode and without gradients, until the next call.

        Raises:
            DataError: no such cell.
        """
        if cell not in self._folders:
            raise DataError(f"teacher of {cell}", got="none", expected=f"one of {', '.join(self._folders)}")
        if self._module is None:
            self._module = load_model(self._folders[cell], self._device).eval().requires_grad_(False)
        elif cell != self._current:
            _replace_weights(self._module, self._folders[cell], cell)
        self._current = cell
        return self._module


def check_same_tokens(cell: str, student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> None:
    """Refuse a teacher whose token ids mean something else."""
    mine, other = student.get_vocab(), teacher.get_vocab()
    different = sorted(token for token in mine.keys() | other.keys() if mine.get(token) != other.get(token))
    if different:
        token = different[0]
        raise DataError(
            f"teacher of {cell}",
            got=f"token {token!r} with id {other.get(token)}",
            expected=f"the student's id {mine.get(token)}",
            fix="distill only specialists of the same cold start",
        )
    if student.eos_token_id != teacher.eos_token_id:
        raise DataError(f"teacher of {cell}", got=f"EOS {teacher.eos_token_id}", expected=f"{student.eos_token_id}")


def _replace_weights(module: PreTrainedModel, folder: Path, cell: str) -> None:
    weights: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= load_file(path)
    parameters = dict(module.state_dict(keep_vars=True))
    for name, tensor in weights.items():
        if name not in parameters or parameters[name].shape != tensor.shape:
            shape = tuple(parameters[name].shape) if name in parameters else "no such tensor"
            raise DataError(f"teacher of {cell}", got=f"{name} of shape {tuple(tensor.shape)}", expected=str(shape))
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)

"""Model folders as sources of tensors, and the proof that they may be merged: same tensors, same tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from stages.core.errors import DataError
from stages.core.files import read_json
from stages.train.model import load_tokenizer

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Parent:
    """One model folder."""

    name: str
    """What messages call it, e.g. ``general.low``."""
    folder: Path
    files: Mapping[str, str]
    """Weight file by tensor name."""


def open_parent(name: str, folder: Path) -> Parent:
    """Find the weights of ``folder``: one file, or shards with an index.

    Raises:
        DataError: no safetensors weights, or an index that names what is not there.
    """
    if (folder / INDEX).exists():
        files = dict(read_json(folder / INDEX)["weight_map"])
    elif (folder / SINGLE).exists():
        with safe_open(folder / SINGLE, framework="pt") as handle:
            files = dict.fromkeys(handle.keys(), SINGLE)
    else:
        raise DataError(f"{name}: {folder}", got=f"neither {SINGLE} nor {INDEX}", expected="a model folder")
    for missing in sorted(set(files.values())):
        if not (folder / missing).exists():
            raise DataError(f"{name}: {folder / INDEX}", got=f"no {missing}", expected="every shard that it names")
    return Parent(name, folder, files)


def specs_of(parent: Parent) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(dtype, shape) by tensor name, from the headers alone.

    Raises:
        DataError: a weight file that cannot be read or lacks what the index promises.
    """
    found = {}
    for file in sorted(set(parent.files.values())):
        try:
            with safe_open(parent.folder / file, framework="pt") as handle:
                for name in handle.keys():  # noqa: SIM118, no mapping
                    part = handle.get_slice(name)
                    found[name] = (str(part.get_dtype()), tuple(part.get_shape()))
        except SafetensorError as error:
            raise DataError(f"{parent.name}: {parent.folder / file}", got=str(error), expected="safetensors") from None
    if found.keys() != parent.files.keys():
        name = sorted(found.keys() ^ parent.files.keys())[0]
        raise DataError(f"{parent.name}: {parent.folder}", got=f"{name} in only one of index and shards")
    return found


def check_parents(reference: Parent, parents: Sequence[Parent]) -> None:
    """Refuse parents that are no siblings of ``reference``, by the first difference.

    Raises:
        DataError: names the parent, the tensor or token, and both values.
    """
    expected = specs_of(reference)
    tied = _tied(reference, expected.keys())
    vocabulary = load_tokenizer(reference.folder).get_vocab()
    for parent in parents:
        _check_specs(parent, specs_of(parent), expected)
        if _tied(parent, expected.keys()) != tied:
            raise DataError(
                f"{parent.name}: config.json",
                got=f"tie_word_embeddings {not tied}",
                expected=f"{tied} as {reference.name}",
            )
        _check_tokens(parent, load_tokenizer(parent.folder).get_vocab(), vocabulary)


def _check_specs(parent: Parent, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise DataError(
                f"{parent.name}: {name}",
                got=_spec_text(found.get(name)),
                expected=_spec_text(expected.get(name)),
                fix="merge only specialists of one cold start",
            )


def _spec_text(spec: tuple[str, tuple[int, ...]] | None) -> str:
    return "no such tensor" if spec is None else f"{spec[0]} {list(spec[1])}"


def _tied(parent: Parent, names: Any) -> bool:
    """Whether the config ties head and embedding; refused where it says no and no head is stored."""
    tied = bool(AutoConfig.from_pretrained(parent.folder).tie_word_embeddings)
    if not tied and HEAD not in names:
        raise DataError(
            f"{parent.name}: {parent.folder / 'config.json'}",
            got=f"tie_word_embeddings false and no {HEAD} in the weights",
            expected="a stored head, or tied embeddings",
        )
    return tied


def _check_tokens(parent: Parent, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    different = [token for token in found.keys() | expected.keys() if found.get(token) != expected.get(token)]
    if different:
        token = min(different)
        raise DataError(
            f"{parent.name}: tokenizer",
            got=f"id {found.get(token)} for {token!r}",
            expected=f"id {expected.get(token)}",
            fix="merge only specialists of one cold start",
        )


def read_tensor(parent: Parent, name: str) -> torch.Tensor:
    """One tensor. The file is opened for it alone: an open one keeps every page that was read in memory."""
    with safe_open(parent.folder / parent.files[name], framework="pt") as handle:
        tensor: torch.Tensor = handle.get_tensor(name)
    return tensor


@dataclass(frozen=True, slots=True)
class Header:
    """The first bytes of a safetensors file, and the tensors whose data follow in this order."""

    data: bytes
    names: tuple[str, ...]


def read_header(path: Path) -> Header:
    """Eight bytes of length, then JSON with the place of every tensor (the safetensors format)."""
    with path.open("rb") as handle:
        length = handle.read(8)
        text = handle.read(int.from_bytes(length, "little"))
    places = {name: about["data_offsets"] for name, about in json.loads(text).items() if name != "__metadata__"}
    return Header(length + text, tuple(sorted(places, key=lambda name: places[name])))

"""From a node and its finished parents to its key: what decides the result, and nothing else."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from flows.config import PipelineConfig
from flows.plan import attempts
from flows.plan.fingerprint import stage_code
from flows.plan.nodes import Node
from flows.plan.stages import STAGES
from infra.store.digests import DigestCache
from infra.store.local import Artifact, Store
from stages.core.errors import DataError
from stages.core.keys import derive_seed, digest_of, stage_key

RECORDED = ("torch", "transformers", "tokenizers", "numpy", "accelerate", "deepspeed")
"""Distributions whose versions go into a manifest; they do not enter the key."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A node whose inputs are all there."""

    node: Node
    key: str
    fields: dict[str, Any]
    """What the key is the digest of: stage, version, config, inputs, seed, attempt."""
    seed: int
    """Of the stage: its own for each node and attempt, so that editing one cell moves no draw of another."""
    inputs: dict[str, Path]
    """Artifact folders and files by input name."""
    parents: dict[str, dict[str, str]]
    """By input name: ``{stage, key, digest, node}`` of an artifact, or ``{file, digest}``."""

    def about(self, seconds: float) -> dict[str, Any]:
        """What ``Store.commit`` writes into the manifest beside the files.

        Args:
            seconds: wall time that the stage took, over all its starts.
        """
        return {
            "node": self.node.id,
            "fields": self.fields,
            "parents": self.parents,
            "seconds": seconds,
            "environment": environment(),
            "code": stage_code(self.node.stage),
        }


class Resolver:
    """Computes keys for one config on one store.

    Args:
        count_code: make the stage's source files part of the key (``--code rebuild``).
    """

    def __init__(self, config: PipelineConfig, store: Store, *, count_code: bool = False) -> None:
        self._seed = config.seed
        self._attempts = attempts.read(store, config.name)
        self._digests = DigestCache(store)
        self._count_code = count_code

    def resolve(self, node: Node, artifacts: Mapping[str, Artifact]) -> Resolved:
        """The key of ``node``, given the artifacts of all its parents by node id.

        Raises:
            DataError: a data file cannot be read.
        """
        inputs: dict[str, Path] = {}
        parents: dict[str, dict[str, str]] = {}
        for name, ref in node.inputs.items():
            if ref.node is not None:
                artifact = artifacts[ref.node]
                inputs[name] = artifact.path
                parents[name] = {
                    "node": ref.node, "stage": artifact.stage, "key": artifact.key, "digest": artifact.digest
                }  # fmt: skip
            else:
                assert ref.file is not None  # a Ref names one or the other
                inputs[name] = Path(ref.file)
                parents[name] = {"file": ref.file, "digest": self._digest(ref.file)}
        fields = self.own_fields(node) | {"inputs": {name: parent["digest"] for name, parent in parents.items()}}
        seed = derive_seed(self._seed, node.id, fields["attempt"])
        return Resolved(node, stage_key(fields), fields, seed, inputs, parents)

    def own_fields(self, node: Node) -> dict[str, Any]:
        """The key's fields without the inputs: known before any parent is made."""
        own = {
            "stage": node.stage,
            "version": STAGES[node.stage].version,
            "config": node.job.key_fields(),
            "seed": self._seed,
            "attempt": self._attempts.get(node.id, 0),
        }
        return own | {"code": digest_of(stage_code(node.stage))} if self._count_code else own

    def file_digests(self, node: Node) -> dict[str, str]:
        """SHA-256 of the node's data files by input name."""
        return {name: self._digest(ref.file) for name, ref in node.inputs.items() if ref.file is not None}

    def save_digests(self) -> None:
        """Remember the digests of data files for the next plan."""
        self._digests.save()

    def _digest(self, file: str) -> str:
        try:
            return self._digests.digest(Path(file))
        except OSError as error:
            raise DataError(file, got=error.strerror or str(error), expected="a readable file") from None


def environment() -> dict[str, str]:
    """Versions of the interpreter and of the libraries that compute."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in RECORDED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

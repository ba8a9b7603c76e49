"""What each node of a pipeline used last: ``refs/<pipeline>/<node>.json``, so that the plan can say what changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flows.plan.keys import Resolved
from infra.store.local import REFS, Artifact, Store
from stages.core.files import read_json, write_json


@dataclass(frozen=True, slots=True)
class LastUse:
    """The last artifact that a node of this pipeline made or reused."""

    key: str
    digest: str
    fields: dict[str, Any]
    """Of the key; see ``Resolved.fields``."""
    parents: dict[str, dict[str, str]]
    """See ``Resolved.parents``."""
    seconds: float
    """Wall time of its making."""


def read(store: Store, pipeline: str, node: str) -> LastUse | None:
    """The node's last use, or None: never, or the record cannot be read, which costs a reason and nothing else."""
    try:
        return LastUse(**read_json(store.root / REFS / pipeline / f"{node}.json"))
    except (OSError, ValueError, TypeError):
        return None


def write(store: Store, pipeline: str, resolved: Resolved, artifact: Artifact) -> None:
    """Note that ``artifact`` now stands for the node; to be called for made and for reused artifacts alike."""
    record = LastUse(
        key=artifact.key,
        digest=artifact.digest,
        fields=resolved.fields,
        parents=resolved.parents,
        seconds=artifact.seconds,
    )
    if read(store, pipeline, resolved.node.id) != record:
        path = store.root / REFS / pipeline / f"{resolved.node.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(record))

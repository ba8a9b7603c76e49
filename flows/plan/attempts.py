"""Which attempt each node of a pipeline is at: ``attempts/<pipeline>.json`` in the store.

``{"rl.code.low": {"use": 2, "last": 3}}``: attempt 2 is in use, 3 was the last one made. Not named: attempt 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.store.local import ATTEMPTS, Store
from stages.core.files import read_json, write_json


def read(store: Store, pipeline: str) -> dict[str, int]:
    """The attempt in use by node id; nodes that are not named are at 0."""
    return {node: int(entry["use"]) for node, entry in _entries(store, pipeline).items()}


def start_new(store: Store, pipeline: str, nodes: Iterable[str]) -> dict[str, int]:
    """Put each node at an attempt number that was never used, and return these numbers."""
    entries = _entries(store, pipeline)
    new = {node: entries.get(node, {"last": 0})["last"] + 1 for node in nodes}
    _write(store, pipeline, entries | {node: {"use": number, "last": number} for node, number in new.items()})
    return new


def use(store: Store, pipeline: str, node: str, attempt: int) -> None:
    """Set a node back to an attempt, or forward again."""
    entries = _entries(store, pipeline)
    last = max(attempt, entries.get(node, {"last": 0})["last"])
    _write(store, pipeline, entries | {node: {"use": attempt, "last": last}})


def _entries(store: Store, pipeline: str) -> dict[str, dict[str, int]]:
    path = store.root / ATTEMPTS / f"{pipeline}.json"
    return dict(read_json(path)) if path.exists() else {}


def _write(store: Store, pipeline: str, entries: dict[str, dict[str, int]]) -> None:
    path = store.root / ATTEMPTS / f"{pipeline}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, entries)

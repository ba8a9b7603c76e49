"""From what a person typed to a store, a run and the artifacts of its nodes."""

from __future__ import annotations

from pathlib import Path

from flows import runs
from flows.config import load
from flows.runs import RunRecord
from infra.store.local import Artifact, Store
from stages.core.errors import ConfigError

DEFAULT_STORE = "store"
CONFIG_SUFFIXES = (".yaml", ".yml")


def open_store(target: str | None, url: str | None) -> Store:
    """The store of ``--store``, else that of the config where the target is one, else ``./store``."""
    if url is None and target is not None and Path(target).suffix in CONFIG_SUFFIXES:
        url = load(Path(target)).store
    return Store.open(url or DEFAULT_STORE)


def find_run(target: str | None, url: str | None) -> tuple[Store, RunRecord]:
    """The store and the run that ``target`` means (see ``runs.resolve``)."""
    store = open_store(target, url)
    return store, runs.resolve(store, target)


def node_artifact(store: Store, record: RunRecord, node: str) -> Artifact:
    """What ``node`` made or reused in the run.

    Raises:
        ConfigError: the run has no such node.
        ConfigError: it is not made yet, or was removed.
    """
    known = record.nodes.get(node)
    if known is None:
        raise ConfigError(
            f"node {node}", got=f"no such node in {record.run_id}", expected=f"one of {', '.join(record.nodes)}"
        )
    artifact = store.find(known.stage, known.key) if known.key is not None and known.digest is not None else None
    if artifact is None:
        way = f"see `ninefold status {record.run_id}`"
        raise ConfigError(f"node {node}", got=f"{known.status} in {record.run_id}", expected="an artifact", fix=way)
    return artifact

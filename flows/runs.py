"""Run records: ``runs/<run_id>/run.json`` in the store, one a pipeline run."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from flows.config import load
from infra.store.local import Store
from stages.core.errors import ConfigError
from stages.core.files import read_json, write_text

State = Literal[
    "RUNNING", "DONE", "GATES_FAILED", "AWAITING_APPROVAL", "FAILED", "SKIPPED", "INTERRUPTED", "TERMINATED"
]

STATE_OF_EXIT: dict[int, State] = {
    0: "DONE",
    3: "GATES_FAILED",
    4: "AWAITING_APPROVAL",
    6: "SKIPPED",
    130: "INTERRUPTED",
    143: "TERMINATED",
}
"""State of a run by the exit code of its command; any other code is FAILED."""

RECORD = "run.json"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What became of one node in one run."""

    stage: str
    status: Literal["waiting", "running", "made", "reused", "adopted", "failed"]
    key: str | None = None
    digest: str | None = None
    """Of the artifact, once there is one."""
    seconds: float = 0.0
    """Wall time in this run."""
    reason: str = ""
    """Of the plan, or of the failure."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One pipeline run."""

    run_id: str
    name: str
    """Of the pipeline."""
    config_path: str
    config: dict[str, Any]
    """As validated, with the overrides."""
    state: State
    pid: int
    host: str
    started: float
    """Seconds since the epoch."""
    ended: float | None = None
    overhead_seconds: float | None = None
    """Wall time outside the stages' own work."""
    error: str = ""
    links: dict[str, str] = field(default_factory=dict)
    """Named addresses for people, e.g. ``mlflow``."""
    nodes: dict[str, NodeRecord] = field(default_factory=dict)

    @property
    def is_orphan(self) -> bool:
        """Recorded as running by a process of this machine that is no more."""
        return self.state == "RUNNING" and self.host == socket.gethostname() and not psutil.pid_exists(self.pid)


def new_run(name: str, config_path: str, config: dict[str, Any]) -> RunRecord:
    """A running record of this process with a new id, e.g. ``quickstart-20260102-030405-ab12``."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    run_id = f"{name}-{stamp}-{secrets.token_hex(2)}"
    return RunRecord(run_id, name, config_path, config, "RUNNING", os.getpid(), socket.gethostname(), now)


def run_dir(store: Store, run_id: str) -> Path:
    return store.runs_dir / run_id


def save(store: Store, record: RunRecord) -> None:
    """Write the record, atomically."""
    folder = run_dir(store, record.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [{"id": name, **asdict(node)} for name, node in record.nodes.items()]
    # Unsorted: the order of the config's tiers means something.
    text = json.dumps(asdict(record) | {"nodes": nodes}, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(folder / RECORD, text + "\n")


def read(store: Store, run_id: str) -> RunRecord:
    values = read_json(run_dir(store, run_id) / RECORD)
    nodes = {node.pop("id"): NodeRecord(**node) for node in values.pop("nodes")}
    return RunRecord(**values, nodes=nodes)


def records(store: Store, name: str | None = None) -> list[RunRecord]:
    """All runs, or those of one pipeline, newest first."""
    found = [read(store, path.parent.name) for path in store.runs_dir.glob(f"*/{RECORD}")]
    own = [record for record in found if name in (None, record.name)]
    return sorted(own, key=lambda record: record.started, reverse=True)


def latest(store: Store, name: str | None = None) -> RunRecord | None:
    """The newest run, or None."""
    return next(iter(records(store, name)), None)


def resolve(store: Store, text: str | None) -> RunRecord:
    """The run that ``text`` means: an id, the only id that begins so, a config file or a pipeline's name (then its
    newest run), or None: the newest of all.

    Raises:
        ConfigError: there is none, or several begin so.
    """
    name = load(Path(text)).name if text is not None and Path(text).suffix in (".yaml", ".yml") else text
    found = records(store)
    exact = [record for record in found if name in (None, record.run_id, record.name)]
    if exact:
        return exact[0]
    hits = [record for record in found if record.run_id.startswith(str(name))]
    if len(hits) == 1:
        return hits[0]
    what = f"run {text or '(latest)'}"
    some = ", ".join(record.run_id for record in (hits or found)[:4])
    if hits:
        raise ConfigError(what, got=f"{len(hits)} runs", expected="one run", fix=f"say more: {some}")
    way = f"runs: {some}" if found else "start one with `ninefold run CONFIG`"
    raise ConfigError(what, got=f"no such run in {store.root}", expected="a run id, a config or its name", fix=way)

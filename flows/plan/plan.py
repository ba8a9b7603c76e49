"""The plan: every node as run, reuse or resume, with the reason. ``run`` does exactly what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from flows.config import PipelineConfig
from flows.plan import refs, select
from flows.plan.fingerprint import drift, stage_code
from flows.plan.keys import Resolver
from flows.plan.nodes import Node, build_nodes
from flows.plan.preflight import check_data
from flows.plan.reasons import field_changes, input_changes, shorten
from infra.store.local import Artifact, Store
from stages.core import checkpoint, manifest
from stages.core.errors import ConfigError, CorruptArtifact

Status = Literal["run", "reuse", "resume"]

CHECKPOINTS = "ckpt"
"""Folder of the checkpoints inside a run folder; see ``stages.core.context``."""


@dataclass(frozen=True, slots=True)
class Row:
    """One node of the plan."""

    node: Node
    status: Status
    key: str | None
    """None: it waits for inputs that have to be made first."""
    reason: str
    """Why it runs, in the config's words; for a reused one empty, or the code drift."""
    descendants: tuple[str, ...]
    """Nodes that have to run because this one does."""
    seconds: float | None
    """Wall time it took before; None: it never ran."""
    artifact: Artifact | None
    """Where it is reused."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a command will do, parents before children."""

    rows: tuple[Row, ...]
    """The nodes that were asked for."""
    artifacts: Mapping[str, Artifact]
    """What is there already, by node id, also of nodes that were not asked for."""
    resolver: Resolver
    """Gives the keys of the waiting rows, once their parents are made."""

    @property
    def to_run(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.status != "reuse")

    @property
    def slot_seconds(self) -> float | None:
        """Estimated cost of ``to_run``, slots x seconds; None where a row never ran."""
        costs = [None if row.seconds is None else row.seconds * row.node.slots for row in self.to_run]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None


def make_plan(
    config: PipelineConfig,
    store: Store,
    *,
    only: Sequence[str] = (),
    until: Sequence[str] = (),
    count_code: bool = False,
) -> Plan:
    """Compare the config with what the store holds. Reads only.

    Args:
        only: node patterns; just these, whose inputs must be there.
        until: node patterns; these and everything they need.
        count_code: source files count as part of the key (``--code rebuild``).

    Raises:
        ConfigError: a pattern names nothing, or ``only`` leaves out a node that has to run first.
        DataError: a data file is missing or empty.
    """
    nodes = build_nodes(config)
    wanted = _wanted(nodes, only, until)
    needed = select.with_ancestors(nodes, wanted)
    check_data(config, [node for node in nodes if node.id in wanted])
    planner = _Planner(config, store, Resolver(config, store, count_code=count_code))
    rows = [planner.row(node) for node in nodes if node.id in needed]
    planner.resolver.save_digests()
    _check_inputs([row for row in rows if row.node.id in wanted], wanted, planner.artifacts)
    chosen = [row for row in rows if row.node.id in wanted]
    return Plan(tuple(_with_descendants(chosen)), planner.artifacts, planner.resolver)


def _wanted(nodes: Sequence[Node], only: Sequence[str], until: Sequence[str]) -> set[str]:
    wanted = {node.id for node in nodes}
    if until:
        wanted = select.with_ancestors(nodes, select.matching(nodes, until, "--until"))
    if only:
        wanted &= select.matching(nodes, only, "--only")
    return wanted


def _check_inputs(rows: Iterable[Row], wanted: set[str], artifacts: Mapping[str, Artifact]) -> None:
    for row in rows:
        for parent in row.node.parents:
            if parent not in wanted and parent not in artifacts:
                raise ConfigError(
                    f"--only {row.node.id}",
                    got=f"its input '{parent}' is not there yet",
                    expected="inputs that are made",
                    fix=f"add --only {parent}, or say --until {row.node.id}",
                )


def _with_descendants(rows: Sequence[Row]) -> list[Row]:
    """Rows with the ids of those that have to run because they do."""
    children: dict[str, list[Node]] = defaultdict(list)
    for row in rows:
        for parent in row.node.parents:
            children[parent].append(row.node)
    order = {row.node.id: place for place, row in enumerate(rows)}
    below: dict[str, set[str]] = {}
    for row in reversed(rows):
        own = children[row.node.id]
        below[row.node.id] = {child.id for child in own}.union(*(below[child.id] for child in own))
    return [
        replace(row, descendants=tuple(sorted(below[row.node.id], key=order.__getitem__)))
        if row.status != "reuse"
        else row
        for row in rows
    ]


class _Planner:
    """Walks the nodes, parents first, and remembers which artifacts are there."""

    def __init__(self, config: PipelineConfig, store: Store, resolver: Resolver) -> None:
        self.resolver = resolver
        self.artifacts: dict[str, Artifact] = {}
        self._config = config
        self._store = store
        self._seconds = _Estimates(store)

    def row(self, node: Node) -> Row:
        rerun = {parent for parent in node.parents if parent not in self.artifacts}
        if rerun:
            return self._to_make(node, None, "", rerun)
        resolved = self.resolver.resolve(node, self.artifacts)
        damage = ""
        try:
            artifact = self._store.find(node.stage, resolved.key)
        except CorruptArtifact as error:
            artifact, damage = None, f"artifact damaged ({error.got})"
        if artifact is None:
            return self._to_make(node, resolved.key, damage, rerun)
        self.artifacts[node.id] = artifact
        changed = drift(artifact.manifest["code"], stage_code(node.stage))
        reason = f"code drift: {shorten(list(changed))}" if changed else ""
        return Row(node, "reuse", resolved.key, reason, (), artifact.seconds, artifact)

    def _to_make(self, node: Node, key: str | None, damage: str, rerun: set[str]) -> Row:
        last = refs.read(self._store, self._config.name, node.id)
        seconds = last.seconds if last is not None else self._seconds.of(node)
        reason = damage or self._reason(node, last, rerun)
        step = checkpoint_step(self._store, key) if key is not None else None
        if step is not None:
            return Row(node, "resume", key, f"checkpoint at step {step}; {reason}", (), seconds, None)
        return Row(node, "run", key, reason, (), seconds, None)

    def _reason(self, node: Node, last: refs.LastUse | None, rerun: set[str]) -> str:
        if last is None:
            return "no artifact yet"
        changes = field_changes(self._config, node, last, self.resolver.own_fields(node))
        changes += input_changes(node, last, self._known_digests(node), rerun)
        return shorten(changes) if changes else "its artifact is gone"

    def _known_digests(self, node: Node) -> dict[str, str]:
        """Digests by name of the inputs that are there; others still have to be made."""
        made = {
            name: self.artifacts[ref.node].digest for name, ref in node.inputs.items() if ref.node in self.artifacts
        }
        return self.resolver.file_digests(node) | made


class _Estimates:
    """Mean seconds of past commits, of the same node or else of the same stage."""

    def __init__(self, store: Store) -> None:
        self._by_node: dict[str, list[float]] = defaultdict(list)
        self._by_stage: dict[str, list[float]] = defaultdict(list)
        for record in store.history():
            self._by_node[record["node"]].append(record["seconds"])
            self._by_stage[record["stage"]].append(record["seconds"])

    def of(self, node: Node) -> float | None:
        past = self._by_node.get(node.id) or self._by_stage.get(node.stage)
        return fmean(past) if past else None


def checkpoint_step(store: Store, key: str) -> int | None:
    """Step of the newest checkpoint of an unfinished stage, unverified; None where it has none."""
    steps = []
    for folder in (store.work_dir(key) / CHECKPOINTS).glob(f"{checkpoint.PREFIX}*"):
        try:
            about = manifest.read(folder)
        except CorruptArtifact:
            continue
        if about is not None:
            steps.append(int(about["step"]))
    return max(steps, default=None)

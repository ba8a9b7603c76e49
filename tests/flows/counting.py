"""A pipeline of counting stages, and two ways to drive it without Prefect: in this process, or in one to be killed.

``python counting.py STORE CONTROL`` runs it to its end and exits as the command line would.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from counting_stage import CountJob
from rich.console import Console

from flows import runs
from flows.book import Book
from flows.config import PipelineConfig, load
from flows.execute import Session
from flows.plan import plan as planning
from flows.plan.nodes import Node, Ref
from flows.plan.plan import Plan
from flows.plan.stages import STAGES, StageRow
from flows.progress import Lines
from flows.recorder import Recorder
from flows.runs import NodeRecord
from flows.slots import Slots
from infra.launch.local import LocalLauncher
from infra.store.local import Store
from infra.tracking.mlflow import Tracker
from stages.core.context import StopSignal
from stages.core.errors import NinefoldError
from stages.core.files import read_json

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PIPELINE = HERE / "pipeline.yaml"
DEADLINE_S = 60.0

# Node, its stage, its parents.
GRAPH = (
    ("sft", "sft", ()),
    ("rl.code.low", "rl", ("sft",)),
    ("rl.code.high", "rl", ("sft",)),
    ("rl.agent.low", "rl", ("sft",)),
    ("merge", "merge", ("rl.code.low", "rl.code.high", "rl.agent.low")),
)


def nodes(control: Path, **job: Any) -> tuple[Node, ...]:
    found = []
    for name, stage, parents in GRAPH:
        words = name.split(".")
        domain, effort = (words[1], words[2]) if stage == "rl" else (None, None)
        inputs = {parent: Ref(node=parent) for parent in parents}
        node_job = CountJob(node=name, control=str(control), **job)
        found.append(Node(name, stage, node_job, inputs, slots=1, priority=0, domain=domain, effort=effort))
    return tuple(found)


def patches(control: Path, **job: Any) -> list[Any]:
    """Counting stages behind the names of real ones."""
    rows = {name: StageRow(name, 1, "counting_stage") for name in ("sft", "rl", "merge")}
    return [
        mock.patch.dict(STAGES, rows),
        mock.patch.object(planning, "build_nodes", return_value=nodes(control, **job)),
    ]


def config(store: Path, *overrides: str) -> PipelineConfig:
    return load(PIPELINE, [f"store={store}", *overrides])


def launcher(log: Path) -> LocalLauncher:
    """With nothing to preload: the stages count."""
    path = os.pathsep.join([str(ROOT), str(HERE)])
    return LocalLauncher("flows.worker:main", ["counting_stage"], log, {"PYTHONPATH": path})


def untracked() -> Recorder:
    """A recorder whose tracker answers nothing: every call fails, and the run goes on."""
    no_client: Any = None
    return Recorder(config(Path("store")), Tracker("sqlite:///nowhere", no_client, "0", lambda line: None), "run")


def session(pipeline: PipelineConfig, plan: Plan, starter: LocalLauncher, recorder: Recorder | None = None) -> Session:
    store = Store.open(pipeline.store)
    record = runs.new_run(pipeline.name, "counting.yaml", {})
    waiting = {row.node.id: NodeRecord(row.node.stage, "waiting", reason=row.reason) for row in plan.rows}
    record.nodes.update(waiting)
    return Session(
        config=pipeline,
        store=store,
        plan=plan,
        book=Book(store, record),
        launcher=starter,
        slots=Slots(pipeline.resources.slots),
        stop=StopSignal(),
        display=Lines(Console(file=sys.stderr)),
        recorder=recorder or untracked(),
        command="ninefold run counting.yaml",
        artifacts=dict(plan.artifacts),
    )


def run_all(work: Session) -> dict[str, NinefoldError]:
    """Every node in a thread behind its parents'. Returns the errors by node; a node below a failed one is not run."""
    done: dict[str, Future[bool]] = {}
    errors: dict[str, NinefoldError] = {}

    def one(node: Node) -> bool:
        if not all(done[parent].result() for parent in node.parents):
            return False
        try:
            work.run_node(node)
        except NinefoldError as error:
            errors[node.id] = error
            return False
        return True

    with ThreadPoolExecutor(len(work.plan.rows)) as pool:
        for row in work.plan.rows:
            done[row.node.id] = pool.submit(one, row.node)
    return errors


def totals(store: Store, artifacts: Mapping[str, Any]) -> dict[str, int]:
    return {name: read_json(artifact.path / "total.json")["total"] for name, artifact in artifacts.items()}


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; a test that waits in vain fails."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.01)


def main(store: Path, control: Path) -> int:
    with patches(control)[0], patches(control)[1]:
        pipeline = config(store)
        plan = planning.make_plan(pipeline, Store(store))
        starter = launcher(control / "forkserver.log")
        work = session(pipeline, plan, starter)
        work.stop.install()
        try:
            errors = run_all(work)
        finally:
            starter.close()
    if work.stop.is_set:
        return work.stop.error().exit_code
    return 5 if errors else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

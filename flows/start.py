"""One run from the config to its outcome: plan, open what it needs, run the flow, close, say how it went.

Where everything is there already nothing heavy is imported: neither Prefect nor MLflow nor torch.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console

from flows import runs
from flows.book import Book
from flows.config import PipelineConfig
from flows.execute import Session
from flows.outcome import failure, gates_failed, links, report_path, say, summary_of
from flows.plan import refs
from flows.plan.nodes import PROMOTE, SUMMARY
from flows.plan.plan import Plan, make_plan
from flows.plan.stages import STAGES
from flows.progress import display
from flows.quiet import set_environment
from flows.recorder import Recorder, tracking_uri
from flows.runs import STATE_OF_EXIT, NodeRecord
from flows.slots import Slots
from infra.launch.local import LocalLauncher
from infra.store.local import Artifact, Store
from infra.tracking.connect import check_reachable
from infra.tracking.mlflow import Status, Tracker
from stages.core.context import StopSignal
from stages.core.errors import Interrupted, NinefoldError, Terminated

ENTRY = "flows.worker:main"
PRELOAD = ("torch", "transformers", "infra.engines.single", "infra.samplers.local", "infra.sandbox")
"""Imported once by the fork server, besides the stages that will run."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a command asks for."""

    config: PipelineConfig
    config_path: str
    arguments: Sequence[str]
    """Of the command that goes on with the run."""
    only: Sequence[str] = ()
    until: Sequence[str] = ()
    count_code: bool = False

    @property
    def command(self) -> str:
        return shlex.join(["ninefold", *self.arguments])


def start(request: Request, console: Console) -> None:
    """Do what the plan says and show how it came out.

    Raises:
        NinefoldError: it did not come out well; the record in the store says the same.
    """
    config = request.config
    store = Store.open(config.store)
    store.check_writable()
    plan = make_plan(config, store, only=request.only, until=request.until, count_code=request.count_code)
    if plan.to_run:
        check_reachable(tracking_uri(config, store))
    with _recorded(store, request, plan, console) as book:
        if plan.to_run:
            artifacts = _execute(request, store, plan, book, console)
        else:
            artifacts = _reuse(config, store, plan)
            book.run(links=links(config, artifacts))
        if (error := gates_failed(artifacts)) is not None:
            raise error


@contextmanager
def _recorded(store: Store, request: Request, plan: Plan, console: Console) -> Iterator[Book]:
    """The run's record, closed with the state that the block's end means, then shown."""
    record = runs.new_run(
        request.config.name, request.config_path, request.config.model_dump(mode="json", by_alias=True)
    )
    nodes = {row.node.id: NodeRecord(row.node.stage, "waiting", row.key, reason=row.reason) for row in plan.rows}
    nodes |= {
        row.node.id: replace(nodes[row.node.id], status="reused", digest=row.artifact.digest)
        for row in plan.rows
        if row.artifact is not None
    }
    book = Book(store, replace(record, nodes=nodes))
    code, message = 5, "the program failed"
    try:
        yield book
        code, message = 0, ""
    except NinefoldError as error:
        code, message = error.exit_code, str(error)
        raise
    finally:
        now = time.time()
        overhead_s, wall_s = book.overhead_s(now)
        book.run(state=STATE_OF_EXIT.get(code, "FAILED"), ended=now, error=message, overhead_seconds=overhead_s)
        say(console, store, book.record, wall_s)


def _reuse(config: PipelineConfig, store: Store, plan: Plan) -> Mapping[str, Artifact]:
    """Everything is there: note that this config uses it."""
    for row in plan.rows:
        resolved = plan.resolver.resolve(row.node, plan.artifacts)
        refs.write(store, config.name, resolved, plan.artifacts[row.node.id])
    return plan.artifacts


def _execute(request: Request, store: Store, plan: Plan, book: Book, console: Console) -> Mapping[str, Artifact]:
    """Run the flow over the plan. Raises what it ended with, unless all nodes were made."""
    config, run_id = request.config, book.record.run_id
    set_environment(store)
    stop = StopSignal()
    stop.install()
    screen = display(console)
    modules = dict.fromkeys(STAGES[row.node.stage].module for row in plan.to_run)
    launcher = LocalLauncher(ENTRY, [*PRELOAD, *modules], runs.run_dir(store, run_id) / "forkserver.log")
    try:
        session = Session(
            config=config,
            store=store,
            plan=plan,
            book=book,
            launcher=launcher,
            slots=Slots(config.resources.slots),
            stop=stop,
            display=screen,
            recorder=_open_tracker(config, store, run_id, screen.note),
            command=request.command,
            artifacts=dict(plan.artifacts),
        )
        with screen:
            session.begin()
            launcher.wait_ready()  # the first stages first: Prefect would fight the fork server for the cores
            message = _flow(session)
        book.run(links=links(config, session.artifacts))
        error = failure(session, message)
        _end_tracking(session, error)
    finally:
        launcher.close()
    if error is not None:
        raise error
    return session.artifacts


def _flow(session: Session) -> str:
    """Run the Prefect flow. Returns what it says of its end."""
    # Late and after MLflow: it takes seconds, and two threads must not import at once what both need.
    from flows.pipeline import SESSION, pipeline

    SESSION.set(session)
    return pipeline(session.book.record.run_id, return_state=True).message or ""


def _open_tracker(config: PipelineConfig, store: Store, run_id: str, warn: Callable[[str], None]) -> Recorder:
    uri = tracking_uri(config, store)
    recorder = Recorder(config, Tracker.open(uri, config.tracking.experiment, store.root / ".mlflow", warn), run_id)
    recorder.start()
    return recorder


def _end_tracking(session: Session, error: NinefoldError | None) -> None:
    """Register the student and end the parent run."""
    recorder, artifacts = session.recorder, session.artifacts
    promoted = artifacts.get(PROMOTE)
    if promoted is not None and any(row.node.id == PROMOTE for row in session.plan.rows):
        recorder.promoted(session.node(PROMOTE), promoted, gates_hold=gates_failed(artifacts) is None)
    report = report_path(artifacts)
    numbers = summary_of(artifacts[SUMMARY].path) if SUMMARY in artifacts else {}
    stopped = isinstance(error, Interrupted | Terminated)
    status: Status = "FINISHED" if error is None else "KILLED" if stopped else "FAILED"
    recorder.end(status, numbers, [report] if report is not None else [])

"""The pipeline as a Prefect flow: a task a node, waiting for the tasks whose artifacts it takes in.

Prefect schedules and shows; what is done is decided by the store. So nothing is cached or persisted here, a result is
a reference, and a failed node leaves those that do not need it alone. Import this module after ``flows.quiet``.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import Any, cast

import psutil
from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture, wait
from prefect.states import Completed, Failed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.execute import Session
from flows.outcome import links
from flows.plan.nodes import Node
from stages.core.errors import NinefoldError

Reference = dict[str, str]
"""``{node, stage, key, digest, path}`` of an artifact."""

THREADS = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner())

SESSION: ContextVar[Session] = ContextVar("session")
"""Set before ``pipeline`` is called: a session cannot travel as a parameter, which must be JSON."""


@flow(name="pipeline", flow_run_name="{run_id}", task_runner=THREADS, persist_result=False)
def pipeline(run_id: str) -> State[None]:
    """From a base model to one checkpoint that thinks as much as it is asked to."""
    session = SESSION.get()
    session.stop.install()  # Prefect has put its own handler of SIGTERM in its place
    _tie_server(session)
    _show_plan(session)
    tasks = Tasks(session)
    tasks.start("sft")  # cold start: one model that reasons, at any length
    tasks.start("budget")  # how many tokens each problem takes it
    tasks.start("rl")  # a specialist for every domain and effort
    tasks.start("distill", "merge")  # nine teachers into one conditioned student
    tasks.start("evaluate")  # each of them on held-out problems
    tasks.start("summary")  # the knob, the recovery, the report
    tasks.start("export")  # ready to serve; the gates decide whether it is promoted
    tasks.wait()
    _show_links(session)
    failed = session.book.errors
    return Failed(message=f"failed: {', '.join(failed)}") if failed else Completed()


@task(cache_policy=NO_CACHE, persist_result=False)
def make(node: str) -> Reference | State[None]:
    """One node by id: reused, adopted or made by a worker process."""
    session = SESSION.get()
    try:
        artifact = session.run_node(session.node(node))
    except NinefoldError as error:
        # A returned state, not an exception: it was reported already, and it needs no traceback.
        return Failed(message=str(error))
    return {
        "node": node,
        "stage": artifact.stage,
        "key": artifact.key,
        "digest": artifact.digest,
        "path": str(artifact.path),
    }


class Tasks:
    """Submits the plan's nodes, stage by stage, each behind its parents."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._futures: dict[str, PrefectFuture[Any]] = {}

    def start(self, *stages: str) -> None:
        for row in self._session.plan.rows:
            if row.node.stage in stages:
                self._futures[row.node.id] = self._submit(row.node)

    def wait(self) -> None:
        wait(list(self._futures.values()))

    def _submit(self, node: Node) -> PrefectFuture[Any]:
        parents = [self._futures[parent] for parent in node.parents if parent in self._futures]
        named = make.with_options(name=node.stage, task_run_name=node.id)
        return named.submit(node.id, wait_for=parents, return_state=False)


def _tie_server(session: Session) -> None:
    """Have the temporary server, if there is one, end with this process however it ends."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if any("prefect.server" in word for word in child.cmdline()):
                session.launcher.adopt(child.pid)


def _show_plan(session: Session) -> None:
    rows = [
        {"node": row.node.id, "plan": row.status, "why": row.reason, "key": row.key or ""} for row in session.plan.rows
    ]
    create_table_artifact(table=rows, key="plan", description=f"What {session.book.record.run_id} does, and why")


def _show_links(session: Session) -> None:
    for name, link in links(session.config, session.artifacts).items():
        create_link_artifact(link=link, link_text=name, key=f"link-{name}")

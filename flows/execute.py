"""Making one node, whoever decides the order: find its key, take its lease, reuse what is there, else run a worker.

Knows nothing of Prefect. A Session is what all nodes of one run share; threads call ``run_node`` side by side.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.book import Book
from flows.config import PipelineConfig
from flows.plan import refs
from flows.plan.keys import Resolved
from flows.plan.nodes import Node
from flows.plan.plan import Plan
from flows.plan.stages import STAGES
from flows.progress import Display
from flows.recorder import Recorder
from flows.slots import Slots
from flows.watch import Watch
from infra.launch.local import LocalLauncher
from infra.launch.process import Launcher, signal_name, wait
from infra.launch.torchrun import RankLauncher
from infra.store.lease import Lease
from infra.store.local import Artifact, Store
from stages.core.context import ERROR, EVENTS, RESOLVED, RESULT, StopSignal
from stages.core.errors import EXIT_CODES, CorruptArtifact, NinefoldError, StageFailed
from stages.core.files import read_json, read_jsonl, write_json

TRAINING = frozenset({"sft", "rl", "distill"})
"""Stages that run in several processes under a distributed engine."""
STOP_GRACE_S = 60.0
"""A stage that was told to stop has this long for its checkpoint."""
STOPPED = frozenset({130, 143, -2, -9, -15})
"""Exit codes of a worker that ended because it was told to."""


@dataclass(slots=True)
class Session:
    """One pipeline run under way."""

    config: PipelineConfig
    store: Store
    plan: Plan
    book: Book
    launcher: LocalLauncher
    slots: Slots
    stop: StopSignal
    display: Display
    recorder: Recorder
    command: str
    """What a person types to go on with this run."""
    artifacts: dict[str, Artifact]
    """What is there, by node id; grows as nodes are made."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: dict[str, Future[Artifact]] = field(default_factory=dict)

    def node(self, node_id: str) -> Node:
        return next(row.node for row in self.plan.rows if row.node.id == node_id)

    def run_node(self, node: Node) -> Artifact:
        """The artifact of ``node``, whose parents' are there: reused, adopted from another run, or made now.

        Raises:
            NinefoldError: the stage failed, or the run was told to stop; the record says so too.
        """
        begun = self._begun.get(node.id)
        return self._guarded(node) if begun is None else begun.result()

    def begin(self) -> None:
        """Start, in threads, what waits for no other node: whoever decides the order may take a while to come up."""
        ready = [row.node for row in self.plan.to_run if all(parent in self.artifacts for parent in row.node.parents)]
        pool = ThreadPoolExecutor(len(ready), thread_name_prefix="begin")
        self._begun = {node.id: pool.submit(self._guarded, node) for node in ready}
        pool.shutdown(wait=False)

    def _guarded(self, node: Node) -> Artifact:
        try:
            if self.stop.is_set:
                raise self.stop.error()
            return self._run(node)
        except NinefoldError as error:
            self._note(node, error)
            raise
        except Exception as error:  # a fault of this program: it must not pass for a stage that was not reached
            failure = StageFailed(node.id, got=f"{type(error).__name__}: {error}", expected="no such error")
            self._note(node, failure)
            raise failure from error

    def _note(self, node: Node, error: NinefoldError) -> None:
        if not self.stop.is_set:
            self.book.failed(node.id, error)
            self.display.failed(node.id, str(error))
        elif self.book.record.nodes[node.id].status == "running":
            self.book.node(node.id, status="waiting", reason="stopped")

    def _run(self, node: Node) -> Artifact:
        with self._lock:  # the resolver remembers digests
            resolved = self.plan.resolver.resolve(node, self.artifacts)
        self.book.node(node.id, key=resolved.key)
        artifact, status = self._find(resolved), "reused"
        if artifact is None:
            lease = Lease(self.store, resolved.key, self.book.record.run_id)
            lease.acquire(
                on_wait=lambda holder: self.display.note(f"{node.id}: waits for {holder or 'another run'}"),
                cancelled=lambda: self.stop.is_set,
            )
            try:
                artifact, status = self._find(resolved), "adopted"
                if artifact is None:
                    artifact, status = self._make(resolved), "made"
            finally:
                lease.release()
        self.artifacts[node.id] = artifact
        refs.write(self.store, self.config.name, resolved, artifact)
        self.book.node(node.id, status=status, digest=artifact.digest)
        return artifact

    def _find(self, resolved: Resolved) -> Artifact | None:
        try:
            return self.store.find(resolved.node.stage, resolved.key)
        except CorruptArtifact as error:  # committing the new one sets it aside
            self.display.note(str(error))
            return None

    def _make(self, resolved: Resolved) -> Artifact:
        node = resolved.node
        work = self.store.work_dir(resolved.key)
        work.mkdir(parents=True, exist_ok=True)
        began, watch = time.time(), None
        try:
            with self.slots.take(node.slots, node.priority, lambda: self.stop.is_set) as slots:
                began = time.time()
                watch = self._launch(resolved, work, slots[0])
                code = self._wait(watch)
            if code != 0:
                raise self._failure(node, work, code, watch)
            result = dict(read_json(work / RESULT))
            watch.finish("FINISHED", result["summary"])
            artifact = self._commit(resolved, work, result)
        except BaseException:
            if watch is not None:
                watch.finish("KILLED" if self.stop.is_set else "FAILED", {})
            raise
        finally:
            if watch is not None and watch.began is not None:
                self.book.worked(watch.began, watch.heard)
        self.recorder.made(resolved, artifact, watch.stage_run, self.artifacts)
        self.book.node(node.id, seconds=time.time() - began)
        self.display.ended(node.id, time.time() - began, result["summary"])
        return artifact

    def _launch(self, resolved: Resolved, work: Path, slot: int) -> Watch:
        """Start the worker, then what follows it: the tracker takes its time, and the worker does so too."""
        node = resolved.node
        launcher: Launcher = self.launcher
        write_json(work / RESOLVED, self._resolved_json(resolved, slot))
        if self._ranks(node) is not None:
            launcher = RankLauncher(launcher, self.config.resources.processes)
        threads = str(node.slots * self.config.resources.threads_per_slot)
        old_events = sum(1 for _ in read_jsonl(work / EVENTS))
        process = launcher.launch(work, {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})
        self.book.node(node.id, status="running")
        self.display.started(node.id, self.book.record.nodes[node.id].reason)
        return Watch(node.id, work, process, self.recorder.stage(resolved, work), self.display, old_events)

    def _wait(self, watch: Watch) -> int:
        """Follow the worker to its end, and end it where the run is told to stop. Returns its exit code."""
        deadline: float | None = None

        def on_poll() -> None:
            nonlocal deadline
            watch.poll()
            if self.stop.is_set and deadline is None:
                deadline = time.monotonic() + STOP_GRACE_S
                self.display.note(f"{watch.node}: is told to checkpoint and stop")
                watch.process.terminate()
            elif deadline is not None and time.monotonic() > deadline:
                watch.process.kill()

        code = wait(watch.process, on_poll)
        watch.poll()
        return code

    def _ranks(self, node: Node) -> int | None:
        """How many processes the node's stage runs in, or None for an ordinary worker."""
        resources = self.config.resources
        return resources.processes if resources.engine == "deepspeed" and node.stage in TRAINING else None

    def _failure(self, node: Node, work: Path, code: int, watch: Watch) -> NinefoldError:
        """What to say of a worker that ended with ``code``."""
        if self.stop.is_set and code in STOPPED:
            return self.stop.error()
        way_out = f"last event: {watch.last_event}; log: {work}; to go on: {self.command}"
        if code < 0:
            return StageFailed(
                node.id, got=f"the stage was ended by {signal_name(code)}", expected="an end of its own", fix=way_out
            )
        if code in (130, 143):
            return StageFailed(
                node.id, got="the stage was told to stop from outside", expected="to run on", fix=way_out
            )
        if not (work / ERROR).exists():
            return StageFailed(node.id, got=f"exit code {code} and no word why", expected="error.json", fix=way_out)
        error = read_json(work / ERROR)
        message = str(error["message"]).removeprefix(f"{node.id}: ")
        return EXIT_CODES.get(code, StageFailed)(f"{node.id}: {message}")

    def _commit(self, resolved: Resolved, work: Path, result: Mapping[str, Any]) -> Artifact:
        """Files and logs into the store. Raises StageFailed where they cannot be written."""
        out = work / "out"
        try:
            logs = out / "logs"
            logs.mkdir(exist_ok=True)
            for path in work.iterdir():
                if path.is_file() and path.suffix in (".json", ".jsonl", ".log") and not path.name.startswith("."):
                    shutil.copy(path, logs)
            artifact = self.store.commit(resolved.node.stage, resolved.key, out, resolved.about(result["seconds"]))
        except OSError as error:
            raise StageFailed(
                f"{resolved.node.id}: {error.filename or self.store.root}",
                got=error.strerror or str(error),
                expected="room for the artifact",
                fix=f"the result is kept in {work}; free some space, then: {self.command}",
            ) from None
        self.store.discard_work(resolved.key)
        return artifact

    def _resolved_json(self, resolved: Resolved, slot: int) -> dict[str, Any]:
        node, resources = resolved.node, self.config.resources
        ranks = self._ranks(node)
        return {
            "node": node.id,
            "stage": node.stage,
            "module": STAGES[node.stage].module,
            "config": node.job.model_dump(mode="json", by_alias=True),
            "inputs": {name: str(path.resolve()) for name, path in resolved.inputs.items()},
            "seed": resolved.seed,
            "resources": {
                "device": resources.device,
                "slot": slot,
                "threads": node.slots * resources.threads_per_slot,
                "engine": "single" if ranks is None else resources.engine,
                "processes": ranks or 1,
                "zero_stage": resources.zero_stage,
                "checkpoint_seconds": resources.checkpoint_seconds,
            },
        }

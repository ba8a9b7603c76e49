"""One stage in one process: ``python -m flows.worker RUN_DIR`` (the run folder is described in stages.core.context).

The composition root of the compute side: it hands a stage its ports and knows neither the plan nor the tracker.
Everything heavy is imported late, so that the fork server may import this module first.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import socket
import sys
import time
import traceback
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from infra.launch.environment import WORKER
from stages.core.checkpoint import PREFIX
from stages.core.config import Config, parse
from stages.core.context import ERROR, EVENTS, METRICS, RESOLVED, RESULT, Log, StageContext, StopSignal
from stages.core.errors import NinefoldError, StageFailed
from stages.core.files import fsync_path, read_json, read_jsonl, write_json
from stages.core.ports import Ports, Sampler, Sandbox, Summary, TrainEngine

LOCK = "worker.lock"


def main(run_dir: str) -> int:
    """Run the stage that ``run_dir/resolved.json`` describes. Returns the exit code (see stages.core.errors)."""
    folder = Path(run_dir)
    stop = StopSignal()
    stop.install()
    for name, value in WORKER.items():
        os.environ.setdefault(name, value)
    rank = int(os.environ.get("RANK", "0"))
    log = Log(folder, quiet=rank != 0)
    try:
        with _alone(folder, stop, rank):
            if (folder / RESULT).exists():  # finished by a worker whose flow did not live to see it
                return 0
            _run(folder, log, stop, rank)
        return 0
    except NinefoldError as error:
        return _report(folder, log, error, error.exit_code)
    except Exception as error:
        return _report(folder, log, error, StageFailed.exit_code)


def _run(folder: Path, log: Log, stop: StopSignal, rank: int) -> None:
    resolved = read_json(folder / RESOLVED)
    resources = resolved["resources"]
    earlier_s = _earlier_seconds(folder)
    if rank == 0:
        _clear(folder)
    if resources["engine"] != "deepspeed":
        # Merely because it is installed, accelerate would import it, for seconds, whenever a model is saved.
        sys.modules["deepspeed"] = None  # type: ignore[assignment]
    module = importlib.import_module(resolved["module"])
    job = parse(job_type(module), resolved["config"], resolved["node"])
    device = _set_up_torch(resources, resolved["seed"])
    context = StageContext(
        run_dir=folder,
        inputs={name: Path(path) for name, path in resolved["inputs"].items()},
        seed=resolved["seed"],
        device=device,
        ports=_ports(resources, device),
        log=log,
        stop=stop,
        rank=rank,
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        checkpoint_seconds=resources["checkpoint_seconds"],
    )
    log.event("start", node=resolved["node"], pid=os.getpid(), host=socket.gethostname(), device=device)
    start = time.monotonic()
    summary: Summary = module.run(job, context)
    if rank == 0:
        for path in context.out.rglob("*"):
            fsync_path(path)
        seconds = time.monotonic() - start
        log.event("done", seconds=seconds)
        write_json(folder / RESULT, {"summary": dict(summary), "seconds": earlier_s + seconds})


def _clear(folder: Path) -> None:
    """Remove what an earlier start left and this one writes again. Logs stay only where a checkpoint goes on from them;
    the stage then cuts them back to its step."""
    (folder / ERROR).unlink(missing_ok=True)
    out = folder / "out"
    out.mkdir(exist_ok=True)
    resumes = any((folder / "ckpt").glob(f"{PREFIX}*"))
    for path in out.iterdir():
        if path.is_dir() and not (resumes and path.name == "logs"):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    if not resumes:
        (folder / METRICS).unlink(missing_ok=True)


def _earlier_seconds(folder: Path) -> float:
    """Time that earlier starts of this stage took, each from its start to the last that was heard of it."""
    events = list(read_jsonl(folder / EVENTS))
    starts = [record["t"] for record in events if record["event"] == "start"]
    heard = [record["t"] for record in [*events, *read_jsonl(folder / METRICS)]]
    spans = itertools.pairwise([*starts, float("inf")])
    return float(sum(max(t for t in heard if start <= t < end) - start for start, end in spans))


def job_type(module: Any) -> type[Config]:
    """The Job model that the stage's ``run(job, context)`` takes, read from its annotation."""
    hints = typing.get_type_hints(module.run)
    kind = next(iter(hints.values()))
    if not (isinstance(kind, type) and issubclass(kind, Config)):
        raise TypeError(f"{module.__name__}.run: its first parameter must be annotated with a Config, not {kind}")
    return kind


@contextmanager
def _alone(folder: Path, stop: StopSignal, rank: int) -> Iterator[None]:
    """One worker a run folder: wait for one that is still checkpointing after its flow died. Rank 0 speaks for all.

    Raises:
        Terminated: told to stop while waiting.
    """
    if rank != 0:
        yield
        return
    lock = FileLock(folder / LOCK)  # the kernel lets go of it however the holder ends
    try:
        lock.acquire(cancel_check=lambda: stop.is_set)
    except Timeout:
        raise stop.error() from None
    try:
        yield
    finally:
        lock.release()


def _set_up_torch(resources: Mapping[str, Any], seed: int) -> str:
    """Threads and determinism; returns the device. A stage that did not import torch does not get it imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "cpu"
    torch.set_num_threads(resources["threads"])
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs a pass over every buffer and changes no result
    torch.manual_seed(seed)  # stages address every draw themselves; this is for a library that does not
    return _device(torch, resources["device"], resources.get("slot", 0))


def _device(torch: Any, wanted: str, slot: int) -> str:
    """``auto`` as CUDA, then MPS, then CPU; with several accelerators each slot, or local rank, has its own."""
    if wanted != "auto":
        return wanted
    if torch.cuda.is_available():
        index = int(os.environ.get("LOCAL_RANK", slot)) % torch.cuda.device_count()
        torch.cuda.set_device(index)
        return f"cuda:{index}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _ports(resources: Mapping[str, Any], device: str) -> Ports:
    def engine(model: Any, optimizer_config: Any) -> TrainEngine:
        from infra.engines import build

        return build(resources, device, model, optimizer_config)

    def sampler(model: Any, tokenizer: Any) -> Sampler:
        from infra.samplers.local import LocalSampler

        return LocalSampler(
            model, vocab_size=len(tokenizer), eos_ids=_eos_ids(model, tokenizer), pad_id=tokenizer.pad_token_id
        )

    def sandbox(timeout_s: float, memory_mb: int) -> Sandbox:
        from infra.sandbox import build

        return build(timeout_s, memory_mb)

    return Ports(engine=engine, sampler=sampler, sandbox=sandbox)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a response: the tokenizer's, and those of the model's generation config."""
    configured = model.generation_config.eos_token_id
    more = configured if isinstance(configured, list) else [configured]
    return frozenset(number for number in [tokenizer.eos_token_id, *more] if number is not None)


def _report(folder: Path, log: Log, error: Exception, exit_code: int) -> int:
    """Leave error.json behind; the flow reads it. Returns the exit code."""
    traceback.print_exc()
    name = type(error).__name__
    message = str(error) if isinstance(error, NinefoldError) else f"{name}: {' '.join(str(error).split())}"
    about = {"type": name, "message": message, "exit_code": exit_code, "traceback": traceback.format_exc()}
    try:
        log.event("error", type=name, message=message)
        write_json(folder / ERROR, about)
    except OSError:  # the disk is full: the log and the exit code must do
        traceback.print_exc()
    return exit_code


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m flows.worker RUN_DIR")
    sys.exit(main(sys.argv[1]))

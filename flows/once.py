"""One stage for its own sake: in a worker, over a temporary run folder, leaving nothing behind."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from flows.config import ResourcesConfig
from flows.start import ENTRY
from infra.launch.local import LocalLauncher
from infra.launch.process import signal_name, wait
from stages.core.config import Config
from stages.core.context import ERROR, LOG, METRICS, RESOLVED
from stages.core.errors import EXIT_CODES, NinefoldError, StageFailed, Terminated
from stages.core.files import read_json, read_jsonl, write_json


@contextmanager
def run_once(
    name: str, module: str, job: Config, inputs: Mapping[str, Path], seed: int, resources: ResourcesConfig
) -> Iterator[Path]:
    """Run ``module.run(job, ...)`` and yield the folder of what it wrote, which is gone after the block.

    Args:
        name: for messages and for the line that a terminal shows meanwhile.

    Raises:
        NinefoldError: what the stage raised, or StageFailed where it ended without a word.
    """
    with _sigterm_unwinds(), tempfile.TemporaryDirectory(prefix="ninefold-") as folder:
        run_dir = Path(folder)
        resolved = {
            "node": name,
            "module": module,
            "config": job.model_dump(mode="json", by_alias=True),
            "inputs": {key: str(path.resolve()) for key, path in inputs.items()},
            "seed": seed,
            "resources": {
                "device": resources.device,
                "threads": resources.threads_per_slot,
                "engine": "single",
                "checkpoint_seconds": resources.checkpoint_seconds,
            },
        }
        write_json(run_dir / RESOLVED, resolved)
        code = _work(name, module, run_dir, str(resources.threads_per_slot))
        if code != 0:
            raise _failure(name, run_dir, code)
        yield run_dir / "out"


def _work(name: str, module: str, run_dir: Path, threads: str) -> int:
    """The worker's exit code."""
    # Whatever a library or a sandbox leaves in the temporary folder goes with the run folder.
    launcher = LocalLauncher(ENTRY, [module], run_dir / "forkserver.log", {"TMPDIR": str(run_dir)})
    try:
        process = launcher.launch(run_dir, {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})
        with Console(stderr=True).status(name) as status:

            def on_poll() -> None:
                for record in deque(read_jsonl(run_dir / METRICS), maxlen=1):
                    status.update(f"{name}: {record['step']} of {record['total']}")

            try:
                return wait(process, on_poll)
            finally:
                process.kill()  # after Ctrl-C: there is no checkpoint to wait for
    finally:
        launcher.close()


def _failure(name: str, run_dir: Path, code: int) -> NinefoldError:
    if (run_dir / ERROR).exists():
        error = read_json(run_dir / ERROR)
        failure = EXIT_CODES.get(code, StageFailed)(str(error["message"]))
        failure.add_note(error["traceback"])
        return failure
    log = run_dir / LOG
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    got = f"ended by {signal_name(code)}" if code < 0 else f"exit code {code}"
    said = next((line for line in reversed(lines) if line.strip()), "nothing")
    return StageFailed(name, got=f"{got}; its last line: {said}", expected="an end of its own")


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """SIGTERM leaves by an exception, as Ctrl-C does, so that the temporary folder goes."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        sys.exit(Terminated.exit_code)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Two gloo ranks against one process, through the real worker.

Oracle: the single-process engine on the same batches; and a run that was cut off against one that was not.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import load_file

from infra.engines import build
from stages.core.context import METRICS, RESOLVED, RESULT, Log, StageContext
from stages.core.files import read_jsonl, write_json
from stages.core.ports import Ports, TrainEngine
from stages.sft import stage
from stages.sft.config import SFTConfig, SFTJob
from stages.tasks.config import PromptConfig
from stages.train.config import BatchConfig, MicroBase, OptimizerConfig

pytest.importorskip("deepspeed")

STEPS = 4
SEED = 3
RESOURCES = {"threads": 1, "device": "cpu", "checkpoint_seconds": 0, "engine": "deepspeed", "zero_stage": 2}
TIMEOUT_S = 240


def job(optimizer: OptimizerConfig) -> SFTJob:
    return SFTJob(
        base=MicroBase(hidden=16, heads=2, kv_heads=1, layers=1, intermediate=24, context=64),
        sft=SFTConfig(
            steps=STEPS,
            batch_rows=7,  # odd, so that one rank must be filled up
            optimizer=optimizer,
            batch=BatchConfig(micro_batch_tokens=40),
        ),
        prompt=PromptConfig(efforts=("low", "high", "max")),
        domains=("letters",),
    )


def write_run(folder: Path, job: SFTJob, demonstrations: Path) -> Path:
    """A run folder as the flow leaves it for workers under ZeRO-2; a checkpoint at every step."""
    folder.mkdir()
    resolved = {
        "node": "sft",
        "module": "stages.sft.stage",
        "config": job.model_dump(mode="json"),
        "inputs": {"demonstrations.letters": str(demonstrations)},
        "seed": SEED,
        "resources": RESOURCES,
    }
    write_json(folder / RESOLVED, resolved)
    return folder


def run_single(folder: Path, job: SFTJob, demonstrations: Path) -> None:
    """The same job under the single-process engine, here."""
    (folder / "out").mkdir(parents=True)

    def engine(model: Any, config: OptimizerConfig) -> TrainEngine:
        return build({"engine": "single"}, "cpu", model, config)

    ports = Ports(engine=engine, sampler=no_port, sandbox=no_port)
    inputs = {"demonstrations.letters": demonstrations}
    stage.run(job, StageContext(folder, inputs, SEED, "cpu", ports, Log(folder)))


def no_port(*_args: Any, **_named: Any) -> NoReturn:
    raise AssertionError("the cold start neither samples nor verifies")


def work(folder: Path, processes: int) -> list[int]:
    """Run the worker in every rank; the exit codes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    with ExitStack() as stack:
        ranks = []
        for rank in range(processes):
            log = stack.enter_context((folder / f"rank-{rank}.log").open("w"))
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "flows.worker", str(folder)]
            ranks.append(subprocess.Popen(command, env=shared | own, stdout=log, stderr=subprocess.STDOUT))
            stack.callback(ranks[-1].kill)
        return [rank.wait(TIMEOUT_S) for rank in ranks]


def metrics(folder: Path) -> list[dict[str, float]]:
    return [record["metrics"] for record in read_jsonl(folder / METRICS)]


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of many lengths, some of them weighted."""
    draw = random.Random(0)
    rows = [
        {
            "id": str(number),
            "prompt": " ".join(draw.choices("abcde", k=3)),
            "response": " ".join([*draw.choices("abcde", k=draw.randint(1, 20)), "</think>", draw.choice("abcde")]),
            "weight": draw.choice([1.0, 2.0]),
        }
        for number in range(40)
    ]
    path = tmp_path_factory.mktemp("data") / "demonstrations.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, demonstrations: Path) -> tuple[Path, Path]:
    """(one process, two ranks of ZeRO-2) on the same job."""
    root = tmp_path_factory.mktemp("runs")
    adamw = job(OptimizerConfig(lr=1e-2, warmup_steps=2))
    single = root / "single"
    run_single(single, adamw, demonstrations)
    double = write_run(root / "double", adamw, demonstrations)
    assert work(double, 2) == [0, 0], (double / "rank-0.log").read_text()
    return single, double


def test_two_ranks_equal_one_process(runs: tuple[Path, Path]) -> None:
    single, double = runs
    for one, two in zip(metrics(single), metrics(double), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], abs=1e-5)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)
        assert two["token_accuracy"] == one["token_accuracy"]
        assert two["lr"] == one["lr"]
    ours, theirs = (load_file(folder / "out" / "model.safetensors") for folder in runs)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, atol=1e-4, rtol=0)


def test_ranks_resume_where_they_were_cut_off(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """The same state in new processes gives the same bits: steps 3 and 4 again, from the checkpoint of step 2."""
    whole = runs[1]
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    (cut / RESULT).unlink()
    shutil.rmtree(cut / "ckpt" / f"step-{STEPS - 1}")
    assert work(cut, 2) == [0, 0], (cut / "rank-0.log").read_text()
    assert metrics(cut) == metrics(whole)
    after, before = (load_file(folder / "out" / "model.safetensors") for folder in (cut, whole))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())

"""Asking and measuring a real model of a few thousand weights with the real program. Oracles: exit codes, the problems
of the files, and folders that are empty again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stages.core.files import append_jsonl
from stages.tasks.config import PromptConfig

DEADLINE_S = 120.0
CONFIG = """
name: sums
domains:
  sums: {problems: p.jsonl, heldout: p.jsonl, demonstrations: p.jsonl, cap_tokens: 6}
  code: {problems: c.jsonl, heldout: c.jsonl, demonstrations: c.jsonl, cap_tokens: 6, verifier: {type: code}}
tiers: {low: {from: cold_start}, max: {from: cold_start}}
tau: {sums: {low: 1, max: 2}, code: {low: 1, max: 2}}
"""
CODE = {"answer": "def solve(x): return x", "tests": [[1, 1], [2, 2]]}
COMMANDS = {
    "generate": ["generate", "model", "--effort", "low", "--domain", "code", "--config", "sums.yaml", "--json"],
    "evaluate": ["evaluate", "model", "--config", "sums.yaml", "--domain", "sums", "--problems", "3", "--json"],
}


@dataclass(frozen=True)
class Ended:
    """How a real command ended."""

    code: int
    out: str
    err: str
    left: list[str]
    """What is new in its working directory, home and temporary folder."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Real commands on a random model, side by side: most of their time is the import of torch."""
    from stages.tasks.prompts import set_template
    from stages.tasks.tokenizer import build_word_tokenizer
    from stages.train.config import MicroBase
    from stages.train.model import create_micro, save_model

    root = tmp_path_factory.mktemp("real")
    prompt = PromptConfig(efforts=("low", "max"))
    tokenizer = build_word_tokenizer(["sum 1 2 3"], prompt)
    set_template(tokenizer, prompt)
    shape = MicroBase(hidden=16, heads=2, kv_heads=1, layers=1, intermediate=24, context=64)
    model = create_micro(shape, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, 0, "cpu")
    save_model(model, tokenizer, root / "model")
    (root / "sums.yaml").write_text(CONFIG)
    for index in range(4):
        append_jsonl(root / "p.jsonl", {"id": f"p{index}", "prompt": f"sum {index % 3 + 1}", "answer": str(index)})
        append_jsonl(root / "c.jsonl", {"id": f"c{index}", "prompt": "sum 1", **CODE})
    (root / "home").mkdir()
    started = {name: _start(root, name, command) for name, command in COMMANDS.items()}
    try:
        return {name: _end(root, name, process) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()


def _start(root: Path, name: str, command: list[str]) -> subprocess.Popen[str]:
    (root / name).mkdir()  # its temporary folder
    home = str(root / "home")
    env = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": str(root / name), "OMP_NUM_THREADS": "1"}
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-m", "flows.cli", *command], cwd=root, env=env, text=True, **pipes)


def _end(root: Path, name: str, process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=DEADLINE_S)
    known = {"model", "sums.yaml", "p.jsonl", "c.jsonl", "home", *COMMANDS}
    left = [path for path in root.iterdir() if path.name not in known]
    left += [*(root / name).iterdir(), *(root / "home").iterdir()]
    return Ended(process.returncode, out, err, [str(path.relative_to(root)) for path in left])


def test_generate_for_real(real: dict[str, Ended]) -> None:
    done = real["generate"]
    assert (done.code, done.err, done.left) == (0, "", [])
    responses = json.loads(done.out)
    assert [item["problem"] for item in responses] == ["c0", "c1", "c2"]
    for item in responses:  # a random model writes no program
        assert item["correct"] is False
        assert item["expected"] == CODE["answer"]
        assert item["response"].startswith("<think> ")
        assert item["tokens"] + item["answer_tokens"] <= 6


def test_evaluate_for_real(real: dict[str, Ended]) -> None:
    done = real["evaluate"]
    assert (done.code, done.err, done.left) == (0, "", [])
    metrics = json.loads(done.out)
    assert list(metrics) == ["sums.low", "sums.max"]
    assert [cell["problems"] for cell in metrics.values()] == [3, 3]

"""What the tests of RL and distillation share: a chain of one step, a model that has just begun, real ports, a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra import engines
from infra.samplers.local import LocalSampler
from stages.core.context import METRICS, Log, StageContext, StopSignal
from stages.core.files import read_jsonl
from stages.core.keys import digest_file
from stages.core.ports import Ports
from stages.sft.config import SFTConfig, SFTJob
from stages.sft.stage import run as sft
from stages.tasks.config import DomainConfig, PromptConfig
from stages.train.config import MicroBase, OptimizerConfig

WORDS = ("sum 1 2 3 4", "quick steps")
DEMONSTRATIONS = ("quick </think> {answer}", "steps {a} {b} </think> {answer}")
PROMPT = PromptConfig(efforts=("low", "max"))


def _no_sandbox(**_limits: Any) -> Any:
    raise AssertionError("no program runs here")


PORTS = Ports(
    engine=lambda model, config: engines.build({"engine": "single"}, "cpu", model, config),
    sampler=lambda model, tokenizer: LocalSampler(
        model,
        vocab_size=len(tokenizer),
        eos_ids=frozenset({tokenizer.eos_token_id}),
        pad_id=tokenizer.pad_token_id,
    ),
    sandbox=_no_sandbox,
)


def write_problems(path: Path, count: int = 12) -> Path:
    """Sums of two digits, each 1 or 2."""
    rows = [{"id": f"p{i}", "prompt": f"sum {a} {b}", "answer": str(a + b)} for i, (a, b) in enumerate(_sums(count))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _sums(count: int) -> list[tuple[int, int]]:
    return [(1 + index % 2, 1 + index // 2 % 2) for index in range(count)]


def cold_start(run_dir: Path) -> Path:
    """A model folder after a few supervised steps: it knows the form of an answer, and is right now and then."""
    rows = [
        {"id": f"{a}{b}{form[0]}", "prompt": f"sum {a} {b}", "response": form.format(a=a, b=b, answer=a + b)}
        for a, b in _sums(4)
        for form in DEMONSTRATIONS
    ]
    run_dir.mkdir(parents=True)
    demonstrations = run_dir / "demonstrations.jsonl"
    demonstrations.write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = SFTJob(
        base=MicroBase(hidden=16, heads=2, kv_heads=1, layers=2, intermediate=24, context=64),
        sft=SFTConfig(steps=40, batch_rows=16, effort_words=PROMPT.efforts, optimizer=OptimizerConfig(lr=1e-2)),
        prompt=PROMPT,
        domains=("sums",),
    )
    sft(job, context(run_dir, {"demonstrations.sums": demonstrations}))
    return run_dir / "out"


def domain(**fields: Any) -> DomainConfig:
    return DomainConfig(problems="", heldout="", demonstrations="", **{"cap_tokens": 8} | fields)


def context(run_dir: Path, inputs: Mapping[str, Path], *, stop: StopSignal | None = None) -> StageContext:
    (run_dir / "out").mkdir(parents=True, exist_ok=True)
    made = StageContext(run_dir, dict(inputs), seed=3, device="cpu", ports=PORTS, log=Log(run_dir))
    return replace(made, stop=stop) if stop else made


@dataclass(slots=True)
class StopAfter(StopSignal):
    """Says stop once ``steps`` steps are logged, as a SIGTERM in the middle of training would."""

    run_dir: Path
    steps: int

    def __init__(self, run_dir: Path, steps: int) -> None:
        StopSignal.__init__(self)
        self.run_dir, self.steps = run_dir, steps

    @property
    def is_set(self) -> bool:
        return len(list(read_jsonl(self.run_dir / METRICS))) >= self.steps


def metrics_of(run_dir: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, numbers) without times."""
    return [(record["step"], record["metrics"]) for record in read_jsonl(run_dir / METRICS)]


def weights_of(run_dir: Path) -> str:
    return digest_file(run_dir / "out" / "model.safetensors")

"""Asking and measuring checkpoints. Oracles: exit codes of the design, the pipeline's own evaluation nodes, the numbers
that a stand-in for the worker writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from small_pipeline import Workspace, lay_out

from flows import runs
from flows.cli import main
from flows.plan.nodes import build_nodes
from flows.runs import NodeRecord
from stages.core.files import append_jsonl, write_json
from stages.tasks.config import PromptConfig
from stages.tasks.template import with_effort

Ninefold = Callable[..., tuple[int, str, str]]
EFFORTS = ("low", "high", "max")

RESPONSE = {
    "problem": "p1", "sample": 0, "effort": "low", "prompt": "add [1]", "response": "<think> [a] b </think> 2 <eos>",
    "answer": "2", "tokens": 2, "answer_tokens": 1, "truncated": False, "expected": "3", "correct": False,
    "reason": "not equal",
}  # fmt: skip
CELL = {
    "accuracy": {"value": 0.931, "low": 0.902, "high": 0.954},
    "tokens": {"mean": 12.34, "low": 11.5, "high": 13.04, "p90": 21.0},
    "truncated_share": 0.015,
    "problems": 512,
}


@pytest.fixture
def ninefold(capsys: pytest.CaptureFixture[str]) -> Ninefold:
    """Runs a command: exit code, standard output, standard error."""

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as done:
            main(args)
        captured = capsys.readouterr()
        assert isinstance(done.value.code, int)
        return done.value.code, captured.out, captured.err

    return call


def fill_model(folder: Path, efforts: tuple[str, ...] = EFFORTS) -> None:
    """What the command line reads of a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text(with_effort("", PromptConfig(efforts=efforts)))


def fill(node: str, out: Path) -> None:
    if node == "promote":
        fill_model(out / "model")
    elif node.split(".")[0] in ("sft", "rl", "distill"):
        fill_model(out, (node.split(".")[2],) if node.startswith("rl.") else EFFORTS)


@dataclass
class Worker:
    """In the place of the worker: keeps what it was given and answers for it."""

    jobs: list[tuple[Any, Mapping[str, Path], int]] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str, module: str, job: Any, inputs: Any, seed: int, resources: Any) -> Iterator[Path]:
        self.jobs.append((job, inputs, seed))
        out = Path("worker-out")
        out.mkdir()
        append_jsonl(out / "responses.jsonl", RESPONSE)
        write_json(out / "metrics.json", {cell.name: CELL for cell in getattr(job, "cells", ())})
        yield out


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr("flows.cli.model.run_once", made)
    return made


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied, not touched."""
    root = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        space = lay_out(root)
        made = space.make(space.plan(), fill=fill)
        run = runs.new_run("quickstart", "quickstart.yaml", space.config().model_dump(mode="json", by_alias=True))
        nodes = {name: NodeRecord(item.stage, "made", item.key, item.digest) for name, item in made.items()}
        runs.save(space.store, replace(run, state="DONE", nodes=nodes))
    fill_model(root / "elsewhere", ("low", "max"))
    return root


@pytest.fixture
def recorded(recorded_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with a finished run, and a model folder that no run made."""
    root = tmp_path / "work"
    shutil.copytree(recorded_once, root)
    monkeypatch.chdir(root)
    return Workspace(root, root / "quickstart.yaml")


def planned(space: Workspace, node: str) -> Any:
    return next(item.job for item in build_nodes(space.config()) if item.id == node)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["generate", "elsewhere", "x", "--effort", "high"],
            "--effort high: got an unknown effort; expected one of low",
        ),
        (
            ["generate", "elsewhere", "--domain", "maths", "--config", "quickstart.yaml"],
            "--domain maths: got an unknown",
        ),
        (["generate", "elsewhere", "--domain", "code"], "--config: got nothing"),
        (["generate", "elsewhere", "x", "--node", "sft"], "--node sft: got the folder elsewhere"),
        (["generate", "else/where", "x"], "checkpoint else/where: got no such folder"),
        (["generate", "data", "x"], "checkpoint data: got no config.json there"),
        (["generate", "nowhere", "x"], "run nowhere: got no such run"),
        (["generate", "quickstart", "x", "--node", "rl.code.fast"], "node rl.code.fast: got no such node"),
        (["generate", "quickstart", "x", "--node", "budget.code"], "got no config.json there"),
        (["evaluate", "elsewhere", "--config", "quickstart.yaml", "--effort", "high"], "--effort high: got an unknown"),
        (
            ["evaluate", "quickstart", "--domain", "maths"],
            "--domain maths: got an unknown name; expected one of general",
        ),
        (["evaluate", "quickstart", "--node", "rl.code.low", "--effort", "max"], "--effort max: got an unknown name"),
        (["evaluate", "elsewhere"], "--config: got nothing"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_before_anything_starts(
    args: list[str], said: str, recorded: Workspace, ninefold: Ninefold, worker: Worker
) -> None:
    code, out, err = ninefold(*args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert worker.jobs == []


def test_a_missing_heldout_file_is_found_before_anything_starts(
    recorded: Workspace, ninefold: Ninefold, worker: Worker
) -> None:
    recorded.data("code", "heldout").unlink()
    for args in (["generate", "quickstart", "--domain", "code"], ["evaluate", "quickstart"]):
        code, _, err = ninefold(*args)
        assert code == 2
        assert err.startswith("error: domains.code.heldout: got no such file")
    assert worker.jobs == []


@pytest.mark.parametrize(
    ("args", "node", "folder"),
    [
        (["quickstart"], "promote", "model"),
        (["quickstart.yaml"], "promote", "model"),
        (["quickstart", "--node", "distill"], "distill", ""),
        (["quickstart", "--node", "rl.code.low"], "rl.code.low", ""),
    ],
)
def test_a_run_means_its_exported_student(
    args: list[str], node: str, folder: str, recorded: Workspace, ninefold: Ninefold, worker: Worker
) -> None:
    assert ninefold("generate", *args, "--", "x")[0] == 0
    stored = runs.resolve(recorded.store, None).nodes[node]
    assert stored.key is not None
    ((_, inputs, _),) = worker.jobs
    assert inputs["model"].resolve() == recorded.store.path(stored.stage, stored.key).resolve() / folder


def test_without_an_export_a_run_means_its_student(recorded: Workspace, ninefold: Ninefold, worker: Worker) -> None:
    record = runs.resolve(recorded.store, None)
    record.nodes["promote"] = replace(record.nodes["promote"], status="failed", digest=None)
    runs.save(recorded.store, record)
    assert ninefold("generate", "quickstart", "x")[0] == 0
    assert worker.jobs[0][1]["model"].parent.name == "distill"


def test_generate_hands_on_what_was_asked(recorded: Workspace, ninefold: Ninefold, worker: Worker) -> None:
    options = ["--effort", "low", "--n", "2", "--temperature", "0.5", "--max-tokens", "9", "--seed", "7"]
    code, out, err = ninefold("generate", "elsewhere", "add 1", "add 2", *options, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [RESPONSE]
    ((job, inputs, seed),) = worker.jobs
    assert (job.prompts, job.effort, job.samples, job.temperature) == (("add 1", "add 2"), "low", 2, 0.5)
    assert (job.max_tokens, seed, job.spec, job.prompt.efforts) == (9, 7, None, ("low", "max"))
    assert inputs == {"model": Path("elsewhere")}


def test_generate_takes_heldout_problems_of_a_domain(recorded: Workspace, ninefold: Ninefold, worker: Worker) -> None:
    assert ninefold("generate", "quickstart", "--domain", "agent", "--n-problems", "5")[0] == 0
    ((job, inputs, _),) = worker.jobs
    assert (job.prompts, job.problems, job.spec) == ((), 5, recorded.config().domains["agent"])
    assert inputs["heldout"] == Path("data/micro/agent/heldout.jsonl")


def test_generate_reads_prompts_from_stdin(
    recorded: Workspace, ninefold: Ninefold, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", iter(["add 1\n", "\n", " add 2"]))
    assert ninefold("generate", "elsewhere")[0] == 0
    assert worker.jobs[0][0].prompts == ("add 1", "add 2")
    monkeypatch.setattr("sys.stdin", iter(["\n"]))
    code, _, err = ninefold("generate", "elsewhere")
    assert (code, err) == (2, "error: PROMPT: got none, nor a line on stdin; expected one; or name a --domain\n")


def test_a_response_is_shown_with_its_verdict(recorded: Workspace, ninefold: Ninefold, worker: Worker) -> None:
    _, out, _ = ninefold("generate", "elsewhere", "x")
    assert out.strip().splitlines() == [
        "prompt p1  sample 0  effort low  add [1]",
        "<think> [a] b </think> 2 <eos>",
        "answer 2  expected 3  wrong  tokens 2 counted, 1 of answer  not equal",
    ]


@pytest.mark.parametrize(
    ("node", "evaluated"),
    [
        ("promote", "evaluate.distill"),
        ("distill", "evaluate.distill"),
        ("rl.code.low", "evaluate.code.low"),
        ("sft", "evaluate.cold_start"),
    ],
)
def test_a_checkpoint_of_a_run_is_measured_as_the_pipeline_measures_it(
    node: str, evaluated: str, recorded: Workspace, ninefold: Ninefold, worker: Worker
) -> None:
    assert ninefold("evaluate", "quickstart", "--node", node)[0] == 0
    assert worker.jobs[0][0] == planned(recorded, evaluated)


def test_the_folder_of_an_artifact_is_measured_as_its_node(
    recorded: Workspace, ninefold: Ninefold, worker: Worker
) -> None:
    stored = runs.resolve(recorded.store, None).nodes["rl.code.low"]
    assert stored.key is not None
    folder = recorded.store.path(stored.stage, stored.key)
    assert ninefold("evaluate", str(folder), "--config", "quickstart.yaml")[0] == 0
    assert worker.jobs[0][0] == planned(recorded, "evaluate.code.low")


def test_another_folder_is_measured_at_every_effort_that_it_takes(
    recorded: Workspace, ninefold: Ninefold, worker: Worker
) -> None:
    assert ninefold("evaluate", "elsewhere", "--config", "quickstart.yaml")[0] == 0
    ((job, inputs, _),) = worker.jobs
    expected = [f"{domain}.{effort}" for domain in ("general", "code", "agent") for effort in ("low", "max")]
    assert [cell.name for cell in job.cells] == expected
    assert job.conditioned
    assert sorted(inputs) == ["heldout.agent", "heldout.code", "heldout.general", "model"]


def test_evaluate_narrows_and_prints(recorded: Workspace, ninefold: Ninefold, worker: Worker) -> None:
    chosen = ["--domain", "code", "--effort", "low", "--effort", "max", "--problems", "9", "--temperature", "0"]
    _, out, _ = ninefold("evaluate", "quickstart", *chosen)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "cell accuracy, % [95%] tokens, mean [95%] p90 cut off problems",
        "code.low 93.1 [90.2, 95.4] 12.3 [11.5, 13.0] 21 1.5% 512",
        "code.max 93.1 [90.2, 95.4] 12.3 [11.5, 13.0] 21 1.5% 512",
    ]
    ((job, inputs, _),) = worker.jobs
    assert (job.evaluate.problems, job.evaluate.temperature, list(job.specs)) == (9, 0.0, ["code"])
    assert sorted(inputs) == ["heldout.code", "model"]


def test_evaluate_prints_json(recorded: Workspace, ninefold: Ninefold, worker: Worker) -> None:
    _, out, _ = ninefold("evaluate", "quickstart", "--domain", "code", "--effort", "low", "--json")
    assert json.loads(out) == {"code.low": CELL}

"""Reading runs back. Oracles: the records and artifacts that the test itself put into the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_pipeline import Workspace

from flows import runs
from flows.cli import main
from flows.runs import NodeRecord, RunRecord
from stages.core.files import append_jsonl, write_json

Ninefold = Callable[..., tuple[int, str, str]]

INTERVAL = {"value": 0.931, "low": 0.902, "high": 0.954}
CELL = {"accuracy": INTERVAL, "tokens": {"mean": 12.34, "low": 11.5, "high": 13.04}}
COMPARISON: dict[str, Any] = {
    "domains": ["code"],
    "efforts": ["low", "high"],
    "subjects": {
        "cold_start": {"code": CELL},
        "specialists": {"code.low": CELL, "code.high": CELL},
        "student": {"code.low": CELL, "code.high": {**CELL, "tokens": {"mean": 25.0, "low": 24.0, "high": 26.0}}},
    },
    "folds": {
        who: {
            "code": [
                {"from": "low", "to": "high", "bucket": "all", "fold": {"value": 2.026, "low": 1.9, "high": 2.1}},
                {"from": "low", "to": "high", "bucket": "hard", "fold": {"value": 9.0, "low": 9.0, "high": 9.0}},
            ]
        }
        for who in ("specialists", "student")
    },
    "recovery": {
        "code.low": {
            "student_minus_teacher_points": {"value": -1.5, "low": -3.0, "high": 0.5},
            "token_ratio": {"value": 1.04, "low": None, "high": None},
            "recovery": 0.93,
        }
    },
    "checks": [
        {"name": "student.code.fold", "passed": True, "detail": "fine"},
        {"name": "student.code.gain", "passed": False, "detail": "too little [sic]"},
    ],
}
ROLLOUT = {
    "problem": "p1", "sample": 0, "effort": None, "prompt": "add [1]", "response": "<think> ... </think> 2",
    "answer": "2", "expected": "2", "reward": 1.0, "shaped": -1.0, "tokens": 12, "limit": 10.5, "advantage": -0.25,
    "reason": "equal",
}  # fmt: skip


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


def fill(node: str, out: Path) -> None:
    if node == "evaluate":
        write_json(out / "comparison.json", COMPARISON)
        (out / "report.html").write_text("<html>")
    if node.startswith("rl."):
        (out / "logs").mkdir()
        for step in (1, 2):
            for sample in (0, 1):
                append_jsonl(out / "logs" / "rollouts.jsonl", {**ROLLOUT, "step": step, "sample": sample})


@pytest.fixture
def recorded(workspace: Workspace) -> RunRecord:
    """A finished run."""
    made = workspace.make(workspace.plan(), fill=fill)
    run = runs.new_run("quickstart", "quickstart.yaml", {})
    nodes = {
        name: NodeRecord(item.stage, "made", item.key, item.digest, 2.0, "no artifact yet")
        for name, item in made.items()
    }
    record = replace(run, state="DONE", ended=run.started + 75, overhead_seconds=3.0, nodes=nodes)
    runs.save(workspace.store, record)
    return record


def test_status_shows_every_node(recorded: RunRecord, ninefold: Ninefold) -> None:
    code, out, _ = ninefold("status", "quickstart.yaml")
    head, _, *rows = out.splitlines()
    assert code == 0
    assert head.startswith(f"{recorded.run_id}  DONE")
    assert head.endswith("took 75 s, 3.0 s outside the stages")
    assert [row.split()[:3] for row in rows] == [[name, "made", node.key] for name, node in recorded.nodes.items()]


def test_status_of_a_running_stage_says_how_far_it_is(
    workspace: Workspace, recorded: RunRecord, ninefold: Ninefold
) -> None:
    node = NodeRecord("rl", "running", "k9", reason="seed 1 -> 2")
    runs.save(workspace.store, replace(recorded, state="RUNNING", ended=None, nodes={"rl.code.low": node}))
    work = workspace.store.work_dir("k9")
    work.mkdir(parents=True)
    for step in (1, 2):
        append_jsonl(work / "metrics.jsonl", {"t": 0, "step": step, "total": 30, "metrics": {}})
    _, out, _ = ninefold("status")
    assert "step 2 of 30; seed 1 -> 2" in out


def test_status_of_a_run_whose_process_is_gone(workspace: Workspace, recorded: RunRecord, ninefold: Ninefold) -> None:
    runs.save(workspace.store, replace(recorded, state="RUNNING", ended=None, pid=2**22 + 1))
    assert ninefold("status")[1].startswith(f"{recorded.run_id}  DIED (its process is gone; run the same command to go")


def test_status_without_runs_says_how_to_start(workspace: Workspace, ninefold: Ninefold) -> None:
    code, out, err = ninefold("status")
    assert (code, out) == (2, "")
    assert err == (
        "error: run (latest): got no such run in store; expected a run id, a config or its name; "
        "start one with `ninefold run CONFIG`\n"
    )


def test_compare_prints_the_numbers_and_failed_checks(recorded: RunRecord, ninefold: Ninefold) -> None:
    code, out, _ = ninefold("compare")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    interval = "93.1 [90.2, 95.4]"
    assert any(line.split("  ")[0] == "code" and line.count(interval) == 2 for line in lines)
    assert "25.0 [24.0, 26.0]" in out
    assert "2.03 [1.90, 2.10]" in out
    assert "9.00" not in out  # a bucket's fold is not that of all problems
    assert "-1.5 [-3.0, 0.5]" in out
    assert "1.04 [n/a, n/a]" in out
    assert "93%" in out
    assert lines[-2:] == ["checks 1 passed, 1 failed", "failed student.code.gain: too little [sic]"]


def test_compare_json_is_the_artifacts_file(recorded: RunRecord, ninefold: Ninefold) -> None:
    _, out, _ = ninefold("compare", recorded.run_id, "--json")
    assert json.loads(out) == COMPARISON


def test_report_prints_a_path_that_exists(recorded: RunRecord, ninefold: Ninefold) -> None:
    code, out, _ = ninefold("report")
    assert code == 0
    assert Path(out.strip()).read_text() == "<html>"


def test_report_of_an_unfinished_run_names_its_state(
    workspace: Workspace, recorded: RunRecord, ninefold: Ninefold
) -> None:
    runs.save(workspace.store, replace(recorded, nodes={"evaluate": NodeRecord("summary", "waiting")}))
    code, _, err = ninefold("report")
    assert code == 2
    assert err.startswith(f"error: node evaluate: got waiting in {recorded.run_id}; expected an artifact")


def test_rollouts_show_the_reward_breakdown_of_the_last_step(recorded: RunRecord, ninefold: Ninefold) -> None:
    code, out, _ = ninefold("rollouts", "--node", "rl.code.low", "--n", "1")
    assert code == 0
    assert out.strip().splitlines() == [
        "rl.code.low  step 2  problem p1  sample 0",
        "effort none  add [1]",
        "<think> ... </think> 2",
        "answer 2  reward 1 -> -1  tokens 12, limit 10.5 (over)  advantage -0.250  equal",
    ]


def test_rollouts_of_a_step(recorded: RunRecord, ninefold: Ninefold) -> None:
    _, out, _ = ninefold("rollouts", "--step", "1")
    assert out.count("step 1") == 2
    code, _, err = ninefold("rollouts", "--step", "7")
    assert code == 2
    assert err == "error: --step 7: got no rollouts; expected a logged step, 1 to 2\n"


def test_rollouts_of_a_stage_at_work_come_from_its_run_folder(
    workspace: Workspace, recorded: RunRecord, ninefold: Ninefold
) -> None:
    runs.save(workspace.store, replace(recorded, nodes={"rl.code.low": NodeRecord("rl", "running", "k9")}))
    code, _, err = ninefold("rollouts")
    assert code == 2
    assert "got no rollouts logged yet" in err
    folder = workspace.store.work_dir("k9") / "out" / "logs"
    folder.mkdir(parents=True)
    append_jsonl(folder / "rollouts.jsonl", {**ROLLOUT, "step": 3})
    assert "step 3" in ninefold("rollouts")[1]


def test_lineage_goes_back_to_data_and_code(workspace: Workspace, recorded: RunRecord, ninefold: Ninefold) -> None:
    code, out, _ = ninefold("lineage")
    assert code == 0
    assert out.startswith(f"promote export/{recorded.nodes['promote'].key}")
    for name in ("demonstrations", "problems", "heldout"):
        assert f"data/micro/code/{name}.jsonl" in out
    for name, node in recorded.nodes.items():
        assert f"{name} {node.stage}/{node.key}" in out
    assert "code " in out
    assert "seed 1, attempt 0" in out


@pytest.mark.parametrize("form", ["stage/key", "folder"])
def test_lineage_of_one_artifact(workspace: Workspace, recorded: RunRecord, ninefold: Ninefold, form: str) -> None:
    key = recorded.nodes["budget.code"].key
    _, out, _ = ninefold("lineage", f"budget/{key}" if form == "stage/key" else f"store/budget/{key}")
    assert out.startswith(f"budget.code budget/{key}")
    assert "problems: data/micro/code/problems.jsonl" in out
    assert "rl." not in out


def test_lineage_says_what_was_removed(workspace: Workspace, recorded: RunRecord, ninefold: Ninefold) -> None:
    sft = recorded.nodes["sft"]
    assert sft.key is not None
    workspace.store.path("sft", sft.key).rename(workspace.root / "elsewhere")
    _, out, _ = ninefold("lineage", f"budget/{recorded.nodes['budget.code'].key}")
    assert f"model: sft sft/{sft.key} removed from the store" in out


def test_verify_reads_everything(workspace: Workspace, recorded: RunRecord, ninefold: Ninefold) -> None:
    assert ninefold("verify") == (0, "27 artifacts are as their manifests say\n", "")
    key = recorded.nodes["rl.code.low"].key
    assert key is not None
    (workspace.store.path("rl", key) / "weights").write_text("x" * len(key))
    code, out, err = ninefold("verify")
    assert code == 2
    assert out == f"rl/{key} (rl.code.low): changed: weights\n"
    assert err.startswith("error: store store: got 1 damaged artifacts; expected none")

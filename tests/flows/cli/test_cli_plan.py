"""`ninefold plan`, `config` and the table. Oracles: the plan itself and the schema."""

from __future__ import annotations

import json

import pytest
import yaml
from small_pipeline import Workspace

from flows.cli import main
from flows.config import PipelineConfig


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as done:
        main(args)
    captured = capsys.readouterr()
    assert isinstance(done.value.code, int)
    return done.value.code, captured.out, captured.err


def test_plan_prints_rows_with_reasons(finished: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "quickstart.yaml", "--set", "tau.code.low=0.5")
    lines = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:-1]}
    assert code == 0
    assert {node for node, status in lines.items() if status == "run"} == {
        "rl.code.low",
        "distill",
        "evaluate.code.low",
        "evaluate.distill",
        "evaluate",
        "promote",
    }
    assert "tau.code.low 0.6 -> 0.5" in out
    assert out.splitlines()[-1] == "6 to run, 21 reused; about 7.0 s on 2 slots"


def test_plan_says_that_nothing_is_to_do(finished: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "plan", "quickstart.yaml")
    assert out.splitlines()[-1] == "nothing to do: all 27 artifacts are there"


def test_plan_as_json(finished: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "quickstart.yaml", "--only", "rl.code.*", "--set", "tau.code.low=0.5", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["pipeline"] == "quickstart"
    assert {row["node"]: row["status"] for row in plan["rows"]} == {
        "rl.code.max": "reuse",
        "rl.code.high": "reuse",
        "rl.code.low": "run",
    }
    assert (plan["to_run"], plan["slot_seconds"]) == (1, 2.0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--set", "tau.code.lwo=0.5"], "tau.code.lwo: got 'lwo'; expected one of low, high, max"),
        (["--set", "tau.code.low=2"], "tau.code: got low 2.0 and high 1.6; expected tau to fall from max to low"),
        (["--set", "sede=2"], "quickstart.yaml: sede: got an unknown key"),
        (["--until", "budgte"], "--until budgte: got no such node"),
        (["--set", "store=s3://x"], "store: got 's3://x'; expected a local path or file:///path"),
        (["--set", "domains.code.problems=none.jsonl"], "domains.code.problems: got no such file 'none.jsonl'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    before = sorted(workspace.root.rglob("*"))
    code, out, err = run(capsys, "plan", "quickstart.yaml", *args)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert sorted(workspace.root.rglob("*")) == before


def test_config_show_is_a_config_of_the_same_meaning(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "config", "show", "quickstart.yaml", "--set", "seed=3")
    assert PipelineConfig.model_validate(yaml.safe_load(out)) == workspace.config("seed=3")


def test_config_check_counts_the_artifacts(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "config", "check", "quickstart.yaml") == (
        0,
        "ok: quickstart: domains general, code, agent; efforts low, high, max; 27 artifacts\n",
        "",
    )


def test_config_schema_explains_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "config", "schema")
    schema = json.loads(out)
    assert set(schema["properties"]) == set(PipelineConfig.model_fields)
    assert schema["properties"]["tau"]["description"].startswith("Budget multiplier")

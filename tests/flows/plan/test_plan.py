"""Statuses, selection, estimates, drift and damage. Oracles: the files in the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_pipeline import Workspace

from flows.plan import fingerprint
from flows.plan import plan as plan_module
from flows.plan.plan import Plan, Row
from flows.plan.stages import STAGES
from stages.core.checkpoint import Checkpoints
from stages.core.errors import ConfigError, DataError


def row(plan: Plan, node: str) -> Row:
    return next(item for item in plan.rows if item.node.id == node)


def test_the_first_plan_runs_all_and_knows_only_the_first_key(workspace: Workspace) -> None:
    plan = workspace.plan()
    assert {item.reason for item in plan.rows} == {"no artifact yet"}
    assert [item.node.id for item in plan.rows if item.key is not None] == ["sft"]
    assert len(row(plan, "sft").descendants) == len(plan.rows) - 1
    assert plan.slot_seconds is None


def test_planning_writes_nothing_where_there_is_no_store(workspace: Workspace) -> None:
    before = sorted(workspace.root.rglob("*"))
    workspace.plan()
    assert sorted(workspace.root.rglob("*")) == before


def test_a_finished_pipeline_is_reused_with_its_keys(finished: Workspace) -> None:
    plan = finished.plan()
    assert {item.status for item in plan.rows} == {"reuse"}
    assert plan.to_run == ()
    assert plan.slot_seconds == 0
    assert row(plan, "sft").descendants == ()


def test_descendants_are_what_this_row_makes_run(finished: Workspace) -> None:
    plan = finished.plan("tau.code.low=0.5")
    expected = ("distill", "evaluate.code.low", "evaluate.distill", "evaluate", "promote")
    assert row(plan, "rl.code.low").descendants == expected
    assert row(plan, "evaluate.distill").descendants == ("evaluate", "promote")


def test_the_estimate_sums_past_seconds_by_slots(finished: Workspace) -> None:
    plan = finished.plan("tau.code.low=0.5")
    assert len(plan.to_run) == 6
    # 2 s each as the fixture says; distill takes two slots in the quickstart.
    assert plan.slot_seconds == 2.0 * 7


def test_a_new_node_is_estimated_from_its_stage(finished: Workspace) -> None:
    finished.config_path.write_text(finished.config_path.read_text().replace("name: quickstart", "name: other"))
    assert row(finished.plan("tau.code.low=0.5"), "rl.code.low").seconds == 2.0


def test_an_unfinished_stage_resumes_from_its_newest_checkpoint(finished: Workspace) -> None:
    waiting = row(finished.plan("tau.code.low=0.5"), "rl.code.low")
    assert waiting.status == "run"
    assert waiting.key is not None
    checkpoints = Checkpoints(finished.store.work_dir(waiting.key) / "ckpt", lambda message: None)
    for step in (9, 10):
        checkpoints.save(step, lambda folder: (folder / "model").touch())
    resumed = row(finished.plan("tau.code.low=0.5"), "rl.code.low")
    assert resumed.status == "resume"
    assert resumed.reason == "checkpoint at step 10; tau.code.low 0.6 -> 0.5"


def test_a_damaged_artifact_is_made_again_and_says_so(finished: Workspace) -> None:
    artifact = row(finished.plan(), "rl.code.low").artifact
    assert artifact is not None
    (artifact.path / "weights").unlink()
    plan = finished.plan()
    assert row(plan, "rl.code.low").reason == "artifact damaged (missing: weights)"
    assert {item.node.id for item in plan.to_run} == {
        "rl.code.low",
        "evaluate.code.low",
        "distill",
        "evaluate.distill",
        "evaluate",
        "promote",
    }
    finished.make(plan)
    assert finished.plan().to_run == ()


def test_a_removed_artifact_is_made_again_and_says_so(finished: Workspace) -> None:
    artifact = row(finished.plan(), "promote").artifact
    assert artifact is not None
    artifact.path.rename(finished.root / "elsewhere")
    assert [(item.node.id, item.reason) for item in finished.plan().to_run] == [("promote", "its artifact is gone")]


def test_code_drift_is_shown_and_counts_only_if_asked(finished: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fingerprint.stage_code

    def edited(stage: str) -> dict[str, str]:
        return real(stage) | ({"stages/rewards/shapes/x.py": "1"} if stage == "rl" else {})

    monkeypatch.setattr(plan_module, "stage_code", edited)
    monkeypatch.setattr("flows.plan.keys.stage_code", edited)
    plan = finished.plan()
    assert plan.to_run == ()
    assert row(plan, "rl.code.low").reason == "code drift: stages/rewards/shapes/x.py"
    assert row(plan, "sft").reason == ""
    counted = finished.plan(code=True)
    assert row(counted, "sft").status == "run"  # its artifact was made when code did not count


def test_counted_code_is_reused_until_it_changes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.make(workspace.plan(code=True))
    assert workspace.plan(code=True).to_run == ()
    real = fingerprint.stage_code
    monkeypatch.setattr(
        "flows.plan.keys.stage_code", lambda stage: real(stage) | ({"x.py": "1"} if stage == "distill" else {})
    )
    found = [(item.node.id, item.reason) for item in workspace.plan(code=True).to_run]
    assert found[0] == ("distill", "code changed")
    assert [node for node, _ in found] == ["distill", "evaluate.distill", "evaluate", "promote"]


def test_a_new_stage_version_runs_the_stage(finished: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGES, "distill", replace(STAGES["distill"], version=STAGES["distill"].version + 1))
    assert row(finished.plan(), "distill").reason == "distill version 1 -> 2"


def test_until_takes_all_that_is_needed(workspace: Workspace) -> None:
    plan = workspace.plan(until=["budget"])
    assert [item.node.id for item in plan.rows] == ["sft", "budget.general", "budget.code", "budget.agent"]


def test_only_takes_just_these_when_their_inputs_are_there(workspace: Workspace) -> None:
    workspace.make(workspace.plan(until=["budget.code"]))
    plan = workspace.plan(only=["rl.code.*"])
    assert {item.node.id for item in plan.rows} == {"rl.code.low", "rl.code.high", "rl.code.max"}
    assert all(item.key is not None for item in plan.rows)


def test_only_without_inputs_names_the_missing_one(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match=r"rl\.code\.low.*'sft' is not there yet.*--until rl\.code\.low"):
        workspace.plan(only=["rl.code.low"])


def test_a_pattern_that_names_nothing_suggests_the_nearest(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="did you mean 'budget'"):
        workspace.plan(until=["budgte"])


@pytest.mark.parametrize("text", [None, "", "\n \n"])
def test_missing_or_empty_data_is_refused_before_anything_runs(workspace: Workspace, text: str | None) -> None:
    path = workspace.data("code", "heldout")
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=r"^domains\.code\.heldout: got (no such|an empty) file") as error:
        workspace.plan()
    assert error.value.exit_code == 2


def test_data_that_the_chosen_nodes_do_not_read_is_not_asked_for(workspace: Workspace) -> None:
    workspace.data("code", "heldout").unlink()
    assert len(workspace.plan(until=["budget"]).rows) == 4


def test_the_code_behind_a_module_is_found_by_its_imports(tmp_path: Path) -> None:
    for name, text in {
        "stages/__init__.py": "",
        "stages/a/__init__.py": "",
        "stages/a/stage.py": "import torch\nfrom stages.a import maths\nfrom stages.core.keys import digest\n",
        "stages/a/maths.py": "def f():\n    from stages.late import g\n",
        "stages/a/unused.py": "",
        "stages/a/page.css": "import is no word here",
        "stages/core/__init__.py": "",
        "stages/core/keys.py": "digest = 1",
        "stages/late.py": "import stages.a.maths",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(fingerprint.code_of("stages.a.stage", tmp_path)) == [
        "stages/__init__.py",
        "stages/a/__init__.py",
        "stages/a/maths.py",
        "stages/a/page.css",
        "stages/a/stage.py",
        "stages/core/__init__.py",
        "stages/core/keys.py",
        "stages/late.py",
    ]


def test_drift_names_changed_added_and_removed_files() -> None:
    assert fingerprint.drift({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}) == ("b", "c", "d")

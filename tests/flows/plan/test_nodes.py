"""The graph that a config asks for. Oracle: the design's list of stages, written out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from small_pipeline import Workspace

from flows.config import PipelineConfig
from flows.plan.nodes import Node, Ref, build_nodes
from flows.plan.stages import STAGES
from stages.core.config import Config
from stages.core.errors import ConfigError
from stages.distill.config import DistillJob
from stages.evaluate.config import EvaluateJob
from stages.export.config import PromoteJob
from stages.merge.config import MergeJob
from stages.rl.config import RLJob
from stages.sft.config import SFTJob
from stages.tasks.config import CellConfig

JobT = TypeVar("JobT", bound=Config)
CELLS = [f"{domain}.{effort}" for domain in ("general", "code", "agent") for effort in ("low", "high", "max")]


def by_id(config: PipelineConfig) -> dict[str, Node]:
    return {node.id: node for node in build_nodes(config)}


def job(node: Node, kind: type[JobT]) -> JobT:
    assert isinstance(node.job, kind)
    return node.job


def test_the_quickstart_has_these_nodes(workspace: Workspace) -> None:
    expected = {"sft", "distill", "evaluate.cold_start", "evaluate.distill", "evaluate", "promote"}
    expected |= {f"budget.{domain}" for domain in ("general", "code", "agent")}
    expected |= {f"rl.{cell}" for cell in CELLS} | {f"evaluate.{cell}" for cell in CELLS}
    nodes = build_nodes(workspace.config())
    assert {node.id for node in nodes} == expected
    assert len(nodes) == len(expected)
    assert {node.stage for node in nodes} == set(STAGES) - {"merge"}


def test_parents_come_before_children_also_in_a_chain_of_tiers(workspace: Workspace) -> None:
    config = workspace.config("tiers.max.from=high", "tiers.high.from=low")
    seen: set[str] = set()
    for node in build_nodes(config):
        assert set(node.parents) <= seen
        seen.add(node.id)


def test_a_specialist_starts_from_the_cold_start_or_from_its_parent_tier(workspace: Workspace) -> None:
    nodes = by_id(workspace.config("tiers.low.from=high"))
    assert nodes["rl.code.high"].inputs == {
        "model": Ref(node="sft"),
        "budget": Ref(node="budget.code"),
        "problems": Ref(file="data/micro/code/problems.jsonl"),
    }
    assert nodes["rl.code.low"].inputs["model"] == Ref(node="rl.code.high")


def test_a_specialists_job_carries_its_own_cell_only(workspace: Workspace) -> None:
    low = job(by_id(workspace.config())["rl.code.low"], RLJob)
    assert (low.domain, low.effort, low.tau, low.tau_start, low.conditioned) == ("code", "low", 0.6, 0.6, False)
    assert low.rl.steps == 30  # the tier's own field
    assert low.prompt.efforts == ("low",)


def test_annealing_starts_from_the_parents_tau(workspace: Workspace) -> None:
    nodes = by_id(workspace.config("tiers.low.from=high", "rl.annealing.steps=10"))
    assert job(nodes["rl.code.low"], RLJob).tau_start == 1.6


def test_who_is_evaluated_on_what(workspace: Workspace) -> None:
    nodes = by_id(workspace.config())
    cold = job(nodes["evaluate.cold_start"], EvaluateJob)
    assert [cell.effort for cell in cold.cells] == [None, None, None]
    assert (cold.subject, cold.conditioned) == ("cold_start", False)
    specialist = job(nodes["evaluate.code.low"], EvaluateJob)
    assert specialist.cells == (CellConfig(domain="code", effort="low"),)
    assert (specialist.subject, specialist.conditioned, list(specialist.specs)) == ("code.low", False, ["code"])
    student = job(nodes["evaluate.distill"], EvaluateJob)
    assert [cell.name for cell in student.cells] == CELLS
    assert (student.subject, student.conditioned, student.prompt.efforts) == ("student", True, ("low", "high", "max"))


def test_the_student_has_all_teachers_and_the_summary_all_evaluations(workspace: Workspace) -> None:
    nodes = by_id(workspace.config())
    teachers = {name: ref.node for name, ref in nodes["distill"].inputs.items() if name.startswith("teacher.")}
    assert teachers == {f"teacher.{cell}": f"rl.{cell}" for cell in CELLS}
    assert {name for name in nodes["distill"].inputs if name.startswith("problems.")} == {
        "problems.general",
        "problems.code",
        "problems.agent",
    }
    assert job(nodes["distill"], DistillJob).prompt.efforts == ("low", "high", "max")
    summary = nodes["evaluate"].inputs
    assert {ref.node for name, ref in summary.items() if name.startswith("evaluation.")} == {
        f"evaluate.{name}" for name in ("cold_start", "distill", *CELLS)
    }
    assert summary["evaluation.student"] == Ref(node="evaluate.distill")
    assert {ref.node for name, ref in summary.items() if name.startswith("training.")} == {
        "sft",
        "distill",
        *(f"rl.{cell}" for cell in CELLS),
    }
    assert nodes["promote"].inputs == {"model": Ref(node="distill"), "summary": Ref(node="evaluate")}


def test_merging_takes_the_place_of_distillation(workspace: Workspace) -> None:
    values = yaml.safe_load(workspace.config_path.read_text()) | {"consolidate": {"type": "merge"}}
    nodes = by_id(PipelineConfig.model_validate(values))
    assert "distill" not in nodes
    assert job(nodes["merge"], MergeJob).merge.method == "linear"
    assert not any(name.startswith("problems.") for name in nodes["merge"].inputs)
    assert nodes["promote"].inputs["model"] == Ref(node="merge")
    assert "training.merge" not in nodes["evaluate"].inputs


def test_the_cold_start_knows_words_not_tiers(workspace: Workspace) -> None:
    sft = job(by_id(workspace.config())["sft"], SFTJob)
    assert sft.prompt.efforts == ("low", "high", "max")
    assert job(by_id(workspace.config('sft.effort_words=["a"]'))["sft"], SFTJob).prompt.efforts == ("a",)


def test_only_the_export_carries_the_serving_default(workspace: Workspace) -> None:
    nodes = by_id(workspace.config("message.default=low"))
    assert job(nodes["promote"], PromoteJob).prompt.message.default == "low"
    assert job(nodes["distill"], DistillJob).prompt.message.default is None


def test_the_highest_tier_starts_first_and_domains_take_turns(workspace: Workspace) -> None:
    started = sorted(
        (node for node in build_nodes(workspace.config()) if node.stage == "rl"), key=lambda node: node.priority
    )
    assert [node.effort for node in started] == ["max"] * 3 + ["high"] * 3 + ["low"] * 3
    assert [node.domain for node in started] == ["general", "code", "agent"] * 3


def test_slots_never_exceed_what_there_is(workspace: Workspace) -> None:
    assert by_id(workspace.config())["sft"].slots == 2
    assert by_id(workspace.config("resources.slots=1"))["sft"].slots == 1
    assert by_id(workspace.config())["rl.code.low"].slots == 1


def test_slots_of_an_unknown_stage_are_refused(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match=r"resources\.stage_slots\.sfx: got no stage; expected one of sft, "):
        build_nodes(workspace.config("resources.stage_slots.sfx=1"))


def test_a_local_base_model_is_an_input(workspace: Workspace) -> None:
    folder = workspace.root / "base"
    folder.mkdir()
    values = yaml.safe_load(workspace.config_path.read_text()) | {"base": {"type": "hf", "path": str(folder)}}
    assert by_id(PipelineConfig.model_validate(values))["sft"].inputs["base"] == Ref(file=str(folder))
    assert Path(values["base"]["path"]).is_dir()

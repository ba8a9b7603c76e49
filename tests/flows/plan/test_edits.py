"""What an edit costs. Oracle: the sets of nodes that the design promises, written out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from small_pipeline import Workspace

from flows.plan import attempts, select
from flows.plan.nodes import build_nodes
from flows.plan.plan import Plan

DOMAINS = ("general", "code", "agent")
EFFORTS = ("low", "high", "max")
CELLS = {f"{domain}.{effort}" for domain in DOMAINS for effort in EFFORTS}
END = {"distill", "evaluate.distill", "evaluate", "promote"}


def cells(*names: str) -> set[str]:
    """The specialists and their evaluations."""
    return {f"rl.{name}" for name in names} | {f"evaluate.{name}" for name in names}


EVERYTHING = {"sft", "evaluate.cold_start", *(f"budget.{domain}" for domain in DOMAINS), *cells(*CELLS), *END}
CODE = {"budget.code", *cells("code.low", "code.high", "code.max"), *END}


def to_run(plan: Plan) -> dict[str, str]:
    return {row.node.id: row.reason for row in plan.to_run}


SETS: list[tuple[tuple[str, ...], set[str], dict[str, str]]] = [
    (("tau.code.low=0.5",), cells("code.low") | END, {"rl.code.low": "tau.code.low 0.6 -> 0.5"}),
    (
        ("tau.code.max=11",),
        cells("code.max") | END,
        {"rl.code.max": "tau.code.max 10.0 -> 11.0", "distill": "rl.code.max changes"},
    ),
    (
        ("tiers.low.rl.steps=31",),
        cells("general.low", "code.low", "agent.low") | END,
        {"rl.agent.low": "tiers.low.rl.steps 30 -> 31"},
    ),
    (("rl.temperature=0.9",), cells(*CELLS) | END, {"rl.code.low": "rl.temperature 1.0 -> 0.9"}),
    (("rl.steps=99",), set(), {}),  # every tier of the quickstart sets its own
    (
        ("domains.code.verifier.timeout_s=1",),
        CODE | {"evaluate.cold_start"},
        {"budget.code": "domains.code.verifier.timeout_s 2.0 -> 1.0"},
    ),
    (
        ("domains.code.cap_tokens=100",),
        CODE | {"evaluate.cold_start"},
        {"evaluate.cold_start": "domains.code.cap_tokens 128 -> 100"},
    ),
    (
        ("budget.percentile=60",),
        EVERYTHING - {"sft", "evaluate.cold_start"},
        {"budget.code": "budget.percentile 50.0 -> 60.0", "rl.code.low": "budget.code changes"},
    ),
    (
        ("consolidate.type=distill", "consolidate.steps=61"),
        END,
        {"distill": "consolidate.steps 60 -> 61", "promote": "distill changes, evaluate changes"},
    ),
    (
        ("consolidate.type=merge",),
        {"merge", "evaluate.merge", "evaluate", "promote"},
        {"merge": "no artifact yet", "promote": "merge changes, evaluate changes"},
    ),
    (("promote.alias=best",), {"promote"}, {"promote": "promote.alias champion -> best"}),
    (("message.default=low",), {"promote"}, {"promote": "message.default none -> low"}),
    (("seed=2",), EVERYTHING, {"sft": "seed 1 -> 2", "rl.code.low": "seed 1 -> 2, sft changes, budget.code changes"}),
    (("sft.steps=601",), EVERYTHING, {"sft": "sft.steps 600 -> 601"}),
    (('sft.effort_words=["low"]',), EVERYTHING, {"sft": "sft.effort_words low, high, max -> low"}),
    (("condition_specialists=true",), cells(*CELLS) | END, {"rl.code.low": "condition_specialists False -> True"}),
    (("resources.slots=1", "tracking.uri=sqlite:///x.db", "resources.stage_slots.rl=2"), set(), {}),
    (("rl.batch.micro_batch_tokens=1",), set(), {}),  # memory, not the result
    (("tiers.low.from=high",), cells("general.low", "code.low", "agent.low") | END, {}),
]


@pytest.mark.parametrize(("overrides", "expected", "reasons"), SETS, ids=lambda item: str(item)[:40])
def test_an_edit_runs_exactly_these_nodes(
    finished: Workspace, overrides: tuple[str, ...], expected: set[str], reasons: dict[str, str]
) -> None:
    found = to_run(finished.plan(*overrides))
    assert set(found) == expected
    assert all(found.values())
    for node, reason in reasons.items():
        assert found[node] == reason


def test_nothing_changed_runs_nothing(finished: Workspace) -> None:
    assert to_run(finished.plan()) == {}


def test_a_comment_costs_nothing(finished: Workspace) -> None:
    finished.config_path.write_text("# a comment\n" + finished.config_path.read_text())
    assert to_run(finished.plan()) == {}


def test_a_chain_of_tiers_follows_its_parent(workspace: Workspace) -> None:
    chain = ("tiers.high.from=max", "tiers.low.from=high", "rl.annealing.steps=10")
    workspace.make(workspace.plan(*chain))
    found = to_run(workspace.plan(*chain, "tau.code.high=1.5"))
    assert set(found) == cells("code.high", "code.low") | END
    assert found["rl.code.high"] == "tau.code.high 1.6 -> 1.5"
    assert found["rl.code.low"] == "tau.code.high 1.6 -> 1.5, rl.code.high changes"


def test_a_new_tier_runs_its_cells_and_what_joins_them(finished: Workspace) -> None:
    values = yaml.safe_load(finished.config_path.read_text())
    values["tiers"] = {"low": values["tiers"]["low"], "mid": {"from": "cold_start"}, **values["tiers"]}
    values["tau"] = {domain: {**taus, "mid": 1.0} for domain, taus in values["tau"].items()}
    finished.config_path.write_text(yaml.safe_dump(values, sort_keys=False))
    found = to_run(finished.plan())
    assert set(found) == cells("general.mid", "code.mid", "agent.mid") | END
    assert found["rl.code.mid"] == "no artifact yet"
    assert found["distill"].startswith("tiers low, high, max -> low, mid, high, max, rl.general.mid changes")


def test_a_new_row_of_training_problems_runs_what_reads_them(finished: Workspace) -> None:
    with finished.data("code", "problems").open("a") as handle:
        handle.write('{"id": "new"}\n')
    found = to_run(finished.plan())
    assert set(found) == CODE
    assert found["budget.code"] == "file data/micro/code/problems.jsonl changed"


def test_new_heldout_rows_cost_evaluations_only(finished: Workspace) -> None:
    finished.data("code", "heldout").write_text('{"id": "other"}\n')
    expected = {f"evaluate.code.{effort}" for effort in EFFORTS}
    expected |= {"evaluate.cold_start", "evaluate.distill", "evaluate", "promote"}
    assert set(to_run(finished.plan())) == expected


def test_moving_a_data_file_costs_nothing(finished: Workspace) -> None:
    finished.data("code", "problems").rename(finished.root / "moved.jsonl")
    assert to_run(finished.plan("domains.code.problems=moved.jsonl")) == {}


def test_going_back_to_an_earlier_config_reuses_its_artifacts(finished: Workspace) -> None:
    finished.make(finished.plan("tau.code.low=0.5"))
    assert to_run(finished.plan()) == {}


def test_retraining_low_makes_new_attempts_of_the_low_cells_alone(finished: Workspace) -> None:
    before = {row.node.id: row.key for row in finished.plan().rows}
    new = attempts.start_new(finished.store, "quickstart", select.cells(finished.config(), efforts=["low"]))
    assert new == {"rl.general.low": 1, "rl.code.low": 1, "rl.agent.low": 1}
    plan = finished.plan()
    found = to_run(plan)
    assert set(found) == cells("general.low", "code.low", "agent.low") | END
    assert found["rl.code.low"] == "attempt 0 -> 1"
    assert found["evaluate.code.low"] == "rl.code.low changes"
    for row in plan.rows:
        assert row.status == "run" or row.key == before[row.node.id]


def test_an_attempt_can_be_set_back_and_its_number_is_not_given_twice(finished: Workspace) -> None:
    store = finished.store
    attempts.start_new(store, "quickstart", ["rl.code.low"])
    attempts.use(store, "quickstart", "rl.code.low", 0)
    assert to_run(finished.plan()) == {}
    assert attempts.start_new(store, "quickstart", ["rl.code.low"]) == {"rl.code.low": 2}


def test_seeds_of_other_cells_do_not_move(finished: Workspace) -> None:
    def seeds(*overrides: str) -> dict[str, int]:
        plan = finished.plan(*overrides)
        made = finished.make(plan)
        return {row.node.id: plan.resolver.resolve(row.node, made).seed for row in plan.rows}

    first = seeds()
    assert len(set(first.values())) == len(build_nodes(finished.config()))
    assert seeds("tau.code.low=0.5") == first
    attempts.start_new(finished.store, "quickstart", ["rl.code.low"])
    assert {node for node, seed in seeds().items() if seed != first[node]} == {"rl.code.low"}


def test_an_equal_result_stops_the_chain(workspace: Workspace) -> None:
    """Early cutoff: a budget table with the same bytes makes the same keys below it."""

    def same(node: str, out: Path) -> None:
        (out / "weights").write_text(node)

    workspace.make(workspace.plan(), fill=same)
    edit = "budget.floor_tokens=0.5"
    workspace.make(workspace.plan(edit, until=["budget"]), fill=same)
    assert to_run(workspace.plan(edit)) == {}

"""Run records. Oracle: what was saved comes back; the newest run is the one that started last."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flows import runs
from flows.runs import NodeRecord, RunRecord
from infra.store.local import Store
from stages.core.errors import ConfigError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def record(name: str, number: int) -> RunRecord:
    run = runs.new_run(name, f"{name}.yaml", {"seed": 1})
    return replace(run, run_id=f"{name}-20260102-03040{number}-ab1{number}", started=float(number))


def test_an_id_names_pipeline_and_time() -> None:
    assert re.fullmatch(r"quickstart-\d{8}-\d{6}-[0-9a-f]{4}", runs.new_run("quickstart", "q.yaml", {}).run_id)


def test_a_record_comes_back_as_it_was(store: Store) -> None:
    nodes = {"sft": NodeRecord("sft", "made", "k1", "d1", 2.0, "no artifact yet"), "a": NodeRecord("rl", "waiting")}
    saved = replace(record("a", 1), nodes=nodes, config={"tiers": {"low": {}, "high": {}}})
    runs.save(store, saved)
    found = runs.read(store, saved.run_id)
    assert found == saved
    assert list(found.nodes) == ["sft", "a"]
    assert list(found.config["tiers"]) == ["low", "high"]  # from the one that thinks least to the one that thinks most


def test_latest_is_the_last_started_of_the_pipeline(store: Store) -> None:
    for name, number in (("a", 2), ("a", 1), ("b", 3)):
        runs.save(store, record(name, number))
    assert runs.latest(store) == record("b", 3)
    assert runs.latest(store, "a") == record("a", 2)
    assert runs.latest(store, "c") is None


def test_resolve_takes_id_prefix_name_config_or_nothing(store: Store, tmp_path: Path) -> None:
    for name, number in (("a", 2), ("a", 1), ("b", 3)):
        runs.save(store, record(name, number))
    assert runs.resolve(store, "a-20260102-030401-ab11") == record("a", 1)
    assert runs.resolve(store, "a-20260102-030401") == record("a", 1)
    assert runs.resolve(store, "a") == record("a", 2)
    assert runs.resolve(store, None) == record("b", 3)
    with pytest.raises(ConfigError, match="got 2 runs; expected one run; say more: a-"):
        runs.resolve(store, "a-2026")
    with pytest.raises(ConfigError, match="got no such run"):
        runs.resolve(store, "c")


def test_no_runs_at_all_says_how_to_start_one(store: Store) -> None:
    with pytest.raises(ConfigError, match="start one with `ninefold run CONFIG`"):
        runs.resolve(store, None)


def test_a_running_record_of_a_dead_process_is_an_orphan(store: Store) -> None:
    alive = record("a", 1)
    assert not alive.is_orphan
    assert replace(alive, pid=2**22 + 1).is_orphan  # above the largest process id
    assert not replace(alive, pid=2**22 + 1, state="DONE").is_orphan
    assert not replace(alive, pid=2**22 + 1, host="elsewhere").is_orphan

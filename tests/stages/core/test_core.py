"""Keys, manifests, logs, draws and config errors. Each test states its oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import Field

from stages.core import manifest
from stages.core.config import UNKEYED, Config, parse
from stages.core.context import METRICS, Log
from stages.core.draw import epoch_draw
from stages.core.errors import ConfigError, CorruptArtifact
from stages.core.files import append_jsonl, read_jsonl
from stages.core.keys import canonical_json, derive_seed, stage_key


class Inner(Config):
    steps: int = 3
    slots: int = Field(1, json_schema_extra=UNKEYED)


class Outer(Config):
    inner: Inner = Inner()
    name: str = "x"


def test_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"inner\.step: got an unknown key.*did you mean 'steps'"):
        parse(Outer, {"inner": {"step": 4}}, "file.yaml")


def test_wrong_type_says_object_got_and_expected() -> None:
    with pytest.raises(ConfigError, match=r"file.yaml: inner\.steps: got 'many'; expected .*integer"):
        parse(Outer, {"inner": {"steps": "many"}}, "file.yaml")


def test_unkeyed_fields_stay_out_of_the_key() -> None:
    one = Outer(inner=Inner(slots=1)).key_fields()
    assert one == Outer(inner=Inner(slots=9)).key_fields() == {"inner": {"steps": 3}, "name": "x"}
    assert stage_key(one) != stage_key(Outer(inner=Inner(steps=4)).key_fields())


def test_canonical_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})


def test_derived_seeds_are_fixed_and_differ() -> None:
    # Golden: a change here changes every result of every seed.
    assert derive_seed(1, "rl", 0) == 3602743749980934988
    assert len({derive_seed(1, "rl", step) for step in range(1000)}) == 1000
    assert 0 <= derive_seed("x") < 2**63


def test_manifest_tells_missing_resized_changed_and_foreign_apart(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text(name * 4)
    about = manifest.build(tmp_path)
    assert manifest.problems(tmp_path, about, full=True) == []
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_text("b")
    (tmp_path / "c").write_text("CCCC")
    (tmp_path / "e").write_text("new")
    found = manifest.problems(tmp_path, about, full=True)
    assert [line.split(":")[0] + ":" + line.split()[1] for line in found] == [
        "missing:a",
        "size:b",
        "changed:c",
        "foreign:e",
    ]
    assert not any("changed" in line for line in manifest.problems(tmp_path, about, full=False))


def test_content_digest_ignores_logs(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("weights")
    before = manifest.build(tmp_path)["digest"]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.jsonl").write_text("times")
    assert manifest.build(tmp_path)["digest"] == before


def test_a_broken_manifest_is_corrupt_not_missing(tmp_path: Path) -> None:
    assert manifest.read(tmp_path) is None
    (tmp_path / manifest.MANIFEST).write_text("{")
    with pytest.raises(CorruptArtifact):
        manifest.read(tmp_path)


def test_metrics_leave_out_what_is_not_finite_and_count_it(tmp_path: Path) -> None:
    Log(tmp_path).metrics(1, 2, {"loss": float("nan"), "tokens": 3, "lr": float("inf")})
    (record,) = read_jsonl(tmp_path / METRICS)
    assert record["metrics"] == {"tokens": 3.0, "nonfinite": 2.0}


def test_rewind_drops_later_steps_and_a_broken_line(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for step in (1, 2, 3):
        log.metrics(step, 3, {"x": step})
    with (tmp_path / METRICS).open("a") as handle:
        handle.write('{"step": 4, "met')
    log.rewind(2)
    log.metrics(3, 3, {"x": 30})
    assert [(item["step"], item["metrics"]["x"]) for item in read_jsonl(tmp_path / METRICS)] == [
        (1, 1),
        (2, 2),
        (3, 30),
    ]


def test_jsonl_ends_at_a_line_broken_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append_jsonl(path, {"a": 1})
    with path.open("a") as handle:
        handle.write('{"a": 2')
    assert list(read_jsonl(path)) == [{"a": 1}]


def test_epoch_draw_visits_everything_once_an_epoch_and_does_not_depend_on_the_cuts() -> None:
    walk = np.concatenate([epoch_draw(20, start, 4, seed=7) for start in range(0, 40, 4)])
    assert sorted(walk[:20]) == sorted(walk[20:]) == list(range(20))
    assert (walk[:20] != walk[20:]).any()
    assert (epoch_draw(20, 0, 40, seed=7) == walk).all()

"""The command line's edges. Oracles: exit codes of the design, and what a fresh interpreter has imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from flows.cli import COMMANDS, main
from stages.core.errors import GatesFailed

HEAVY = ("torch", "transformers", "prefect", "mlflow", "datasets", "accelerate", "plotly")

IMPORTED = f"""
import json, sys
from flows.cli import main
try:
    main(sys.argv[1:])
except SystemExit as done:
    code = done.code
print(json.dumps({{"code": code, "heavy": [name for name in {HEAVY!r} if name in sys.modules]}}), file=sys.stderr)
"""


def exit_code(*args: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(args)
    assert isinstance(done.value.code, int)
    return done.value.code


@pytest.mark.parametrize("args", [["--help"], ["plan", "--help"], ["config", "schema"], ["status", "--help"]])
def test_light_commands_import_nothing_heavy(args: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED, *args], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == {"code": 0, "heavy": []}
    assert done.stdout


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["paln"], "Did you mean 'plan'"),
        (["plan"], "CONFIG"),
        (["plan", "x.yaml", "--colour"], "--colour"),
    ],
)
def test_wrong_usage_exits_2(args: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*args) == 2
    captured = capsys.readouterr()
    assert named in captured.err
    assert captured.out == ""


def raising(error: BaseException) -> object:
    def schema(**_: object) -> None:
        raise error

    return schema


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (GatesFailed("gates", got="fold low:high 1.1", expected="1.15"), 3, "error: gates: got fold low:high 1.1"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flows.config.PipelineConfig.model_json_schema", raising(error))
    assert exit_code("config", "schema") == code
    captured = capsys.readouterr()
    assert captured.err.startswith(line)
    assert len(captured.err.splitlines()) == (1 if line else 0)


def test_debug_shows_where_an_error_came_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NINEFOLD_DEBUG", "1")
    assert exit_code("plan", "none.yaml") == 2
    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert captured.err.splitlines()[-1].startswith("error: none.yaml: got no such file")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m flows.cli config schema | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""

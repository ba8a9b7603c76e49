"""``ninefold retrain`` and ``ui``. Oracle: the attempts file, and the request that is handed on."""

from __future__ import annotations

import pytest
from small_pipeline import Workspace

from flows.cli import run as commands
from flows.plan import attempts
from flows.start import Request
from stages.core.errors import ConfigError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What would be run; nothing is."""
    found: list[Request] = []
    monkeypatch.setattr(commands, "start", lambda request, console: found.append(request))
    return found


def test_retrain_begins_new_attempts_of_the_named_cells_and_then_runs(
    workspace: Workspace, asked: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    commands.retrain(workspace.config_path, ["low"], ["code", "agent"])
    assert attempts.read(workspace.store, "quickstart") == {"rl.code.low": 1, "rl.agent.low": 1}
    assert capsys.readouterr().out == "rl.code.low: attempt 1\nrl.agent.low: attempt 1\n"
    # The command to go on with is `run`: retrain would begin yet another attempt.
    assert asked[0].command == f"ninefold run {workspace.config_path}"


def test_retrain_of_an_unknown_tier_begins_nothing(workspace: Workspace, asked: list[Request]) -> None:
    with pytest.raises(ConfigError, match="--effort lwo"):
        commands.retrain(workspace.config_path, ["lwo"])
    assert attempts.read(workspace.store, "quickstart") == {}
    assert asked == []


def test_the_command_to_go_on_with_has_all_options(workspace: Workspace, asked: list[Request]) -> None:
    commands.run(workspace.config_path, ["seed=2"], ["rl.*"], ["merge"], commands.Code.rebuild)
    assert asked[0].command == (
        f"ninefold run {workspace.config_path} --set seed=2 --only 'rl.*' --until merge --code rebuild"
    )
    assert asked[0].count_code
    assert asked[0].config.seed == 2


def test_ui_of_a_tracking_server_names_the_server(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    text = workspace.config_path.read_text() + "\ntracking: {uri: 'http://tracker.example:5000'}\n"
    workspace.config_path.write_text(text)
    commands.ui(workspace.config_path, None, 5000)
    assert "http://tracker.example:5000" in capsys.readouterr().out

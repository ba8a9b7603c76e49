"""The fork server with real processes. Oracles: exit codes and signals as the kernel reports them, and who is alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.launch.local import LocalLauncher, LocalProcess
from infra.launch.process import signal_name, wait
from infra.launch.torchrun import RankLauncher
from stages.core.errors import StageFailed

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

Prepare = Callable[[str], Path]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[LocalLauncher]:
    environment = {"PYTHONPATH": f"{ROOT}:{HERE}"}
    found = LocalLauncher("launch_entry:main", ["launch_entry", "no_such_module"], tmp_path / "server.log", environment)
    yield found
    found.close()


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    def make(what: str) -> Path:
        folder = tmp_path / what.replace(" ", "-")
        folder.mkdir()
        (folder / "what").write_text(what)
        return folder

    return make


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.01)


def _end(process: LocalProcess) -> int:
    return wait(process, lambda: None)


def test_a_child_has_its_environment_group_log_and_exit_code(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("print")
    process = launcher.launch(folder, {"COLOUR": "green"})
    assert _end(process) == 7
    assert (folder / "worker.log").read_text() == "said green True True\n"
    assert process.pid == int((folder / "pid-0").read_text())


def test_a_module_that_cannot_be_preloaded_is_no_ones_fault(launcher: LocalLauncher, prepare: Prepare) -> None:
    assert _end(launcher.launch(prepare("print"), {"COLOUR": "red"})) == 7


def test_an_exception_that_the_entry_lets_pass_is_5_and_in_the_log(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("raise")
    assert _end(launcher.launch(folder, {})) == 5
    assert "ValueError: on purpose" in (folder / "worker.log").read_text()


def test_a_signal_death_is_minus_its_number(launcher: LocalLauncher, prepare: Prepare) -> None:
    code = _end(launcher.launch(prepare("segfault"), {}))
    assert (code, signal_name(code)) == (-11, "SIGSEGV")


def test_two_children_run_side_by_side_and_each_is_ended_alone(launcher: LocalLauncher, prepare: Prepare) -> None:
    first, second = prepare("wait"), prepare("wait too")
    processes = [launcher.launch(first, {}), launcher.launch(second, {})]
    _until(lambda: (first / "ready-0").exists() and (second / "ready-0").exists())
    processes[0].terminate()
    assert _end(processes[0]) == 143
    assert processes[1].poll(0) is None
    processes[1].kill()
    assert _end(processes[1]) == -9


def test_nothing_that_a_stage_started_outlives_it(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("leave a child")
    assert _end(launcher.launch(folder, {})) == 0
    pid = int((folder / "grandchild").read_text())
    _until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_close_ends_what_still_runs(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("wait")
    process = launcher.launch(folder, {})
    _until((folder / "ready-0").exists)
    worker = psutil.Process(process.pid)
    launcher.close()
    assert not worker.is_running()
    assert process.poll(0) == 143


def test_a_dead_server_is_said_and_takes_no_more(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("wait")
    process = launcher.launch(folder, {})
    _until((folder / "ready-0").exists)
    worker = psutil.Process(process.pid)
    server = worker.parent()
    assert server is not None
    server.kill()
    with pytest.raises(StageFailed, match="fork server: got it ended with exit code -9"):
        _end(process)
    worker.wait(timeout=60)
    with pytest.raises(StageFailed, match="fork server"):
        launcher.launch(folder, {})


def test_ranks_meet_at_one_address(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("rank")
    assert wait(RankLauncher(launcher, 2).launch(folder, {}), lambda: None) == 0
    first, second = ((folder / f"env-{rank}").read_text().split() for rank in (0, 1))
    assert (first[:2], second[:2]) == (["0", "0"], ["1", "1"])
    assert first[2:] == second[2:]
    assert first[2:4] == ["2", "127.0.0.1"]
    assert (folder / "worker.log").exists()
    assert (folder / "worker-1.log").exists()


def test_a_rank_that_fails_takes_the_others_with_it(launcher: LocalLauncher, prepare: Prepare) -> None:
    folder = prepare("rank 1 fails")
    assert wait(RankLauncher(launcher, 2).launch(folder, {}), lambda: None) == 5
    assert not psutil.pid_exists(int((folder / "pid-0").read_text()))

"""Fixtures of the flow's tests; see small_pipeline."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_pipeline import Workspace, lay_out


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An empty store beside data; the working directory is there, as the config's paths are relative to it."""
    monkeypatch.chdir(tmp_path)
    return lay_out(tmp_path)


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace after one whole run; to be copied, not touched."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        space = lay_out(root)
        space.make(space.plan())
    return root


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A copy of the workspace after one whole run."""
    root = tmp_path / "work"
    shutil.copytree(finished_once, root)
    monkeypatch.chdir(root)
    return Workspace(root, root / "quickstart.yaml")

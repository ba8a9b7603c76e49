"""One empty MLflow database is made a session, and copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.tracking.connect import connect
from infra.tracking.mlflow import Tracker


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow")
    connect(f"sqlite:///{folder}/mlflow.db", "ninefold", folder / "artifacts")
    return folder / "mlflow.db"


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(empty_database, tmp_path / "mlflow.db"))


@pytest.fixture
def warnings_said() -> list[str]:
    return []


@pytest.fixture
def open_tracker(database: Path, tmp_path: Path, warnings_said: list[str]) -> Callable[[], Tracker]:
    """Opens the test's database as a process does that has just started."""

    def make() -> Tracker:
        return Tracker.open(f"sqlite:///{database}", "ninefold", tmp_path / "artifacts", warnings_said.append)

    return make

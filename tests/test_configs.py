"""Every config that is shipped loads with its own schema, and the packages are ours alone."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from flows.config import load

CONFIGS = sorted(Path(__file__).parents[1].joinpath("configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_config_loads(path: Path) -> None:
    assert load(path).name == path.stem


@pytest.mark.parametrize("package", ["flows", "stages", "infra"])
def test_no_other_distribution_claims_our_package_names(package: str) -> None:
    assert set(packages_distributions().get(package, [])) <= {"ninefold"}

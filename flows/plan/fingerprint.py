"""The code behind a stage: digests of its first-party source files, found by reading imports, importing nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import stages as stages_package
from flows.plan.stages import STAGES
from stages.core.keys import digest_file

SOURCE_ROOT = Path(stages_package.__file__).resolve().parents[1]
FIRST_PARTY = ("stages", "infra")


CODE = (".py", ".pyc")
"""What else lies in a package is its data: templates, style sheets."""
WORKER = "flows.worker"
"""Hands every stage its sampler, engine and sandbox, so their code is behind every stage too."""


@cache
def stage_code(stage: str) -> dict[str, str]:
    """SHA-256 by path, relative to the source root, of every file that the stage's module and the worker reach."""
    return code_of(STAGES[stage].module, SOURCE_ROOT) | code_of(WORKER, SOURCE_ROOT)


def code_of(module: str, root: Path) -> dict[str, str]:
    """SHA-256 by relative path of ``module`` and of every first-party module it reaches by import."""
    found: dict[Path, str] = {}
    waiting = [module]
    while waiting:
        for path in _files(waiting.pop(), root):
            if path not in found:
                found[path] = digest_file(path)
                waiting += _imports(path)
    return {path.relative_to(root).as_posix(): sha256 for path, sha256 in sorted(found.items())}


def drift(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Files that were changed, added or removed."""
    return tuple(sorted(path for path in {*old, *new} if old.get(path) != new.get(path)))


def _files(module: str, root: Path) -> list[Path]:
    """The module's file, and of each package on the way to it the ``__init__`` and the data files."""
    parts = module.split(".")
    packages = [root.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    files = [root.joinpath(*parts).with_suffix(".py")]
    for package in packages:
        if (package / "__init__.py").is_file():
            files += [path for path in package.iterdir() if path.name == "__init__.py" or path.suffix not in CODE]
    return [path for path in files if path.is_file()]


@cache
def _imports(path: Path) -> tuple[str, ...]:
    if path.suffix != ".py":
        return ()
    return tuple(_first_party(ast.parse(path.read_bytes())))


def _first_party(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from package import name`: name is a module or an attribute; what is no file is passed over.
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in FIRST_PARTY)

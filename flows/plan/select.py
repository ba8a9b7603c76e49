"""Which nodes a command asks for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from flows.config import PipelineConfig
from flows.plan.nodes import Node
from stages.core.errors import ConfigError


def matching(nodes: Sequence[Node], patterns: Iterable[str], option: str) -> set[str]:
    """Ids that a pattern names: ``rl.code.*``, ``evaluate``, or a whole group by its first words, ``budget``.

    Raises:
        ConfigError: a pattern names nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        hits = {node.id for node in nodes if fnmatchcase(node.id, pattern) or fnmatchcase(node.id, f"{pattern}.*")}
        if not hits:
            names = [node.id for node in nodes]
            near = difflib.get_close_matches(pattern, [*names, *{name.split(".")[0] for name in names}], n=1)
            way = f"did you mean '{near[0]}'?" if near else f"nodes: {', '.join(names)}"
            raise ConfigError(f"{option} {pattern}", got="no such node", expected="a node id or a pattern", fix=way)
        found |= hits
    return found


def with_ancestors(nodes: Sequence[Node], ids: set[str]) -> set[str]:
    """``ids`` and everything they need."""
    found = set(ids)
    for node in reversed(nodes):  # children come after their parents
        if node.id in found:
            found |= set(node.parents)
    return found


def with_descendants(nodes: Sequence[Node], ids: set[str]) -> set[str]:
    """``ids`` and everything that is made from them."""
    found = set(ids)
    for node in nodes:
        if found & set(node.parents):
            found.add(node.id)
    return found


def cells(config: PipelineConfig, efforts: Sequence[str] = (), domains: Sequence[str] = ()) -> list[str]:
    """Ids of the specialists of these efforts and domains; none named: all.

    Raises:
        ConfigError: an unknown effort or domain.
    """
    for option, got, known in (("--effort", efforts, config.efforts), ("--domain", domains, tuple(config.domains))):
        for name in got:
            if name not in known:
                raise ConfigError(
                    f"{option} {name}", got=f"'{name}'", expected=f"one of {', '.join(known)}", fix="correct the name"
                )
    return [
        f"rl.{cell.name}"
        for cell in config.cells
        if (not efforts or cell.effort in efforts) and (not domains or cell.domain in domains)
    ]

"""Why a node has to run, in the words of the pipeline's config: ``tau.code.low 0.8 -> 0.7``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from flows.config import COLD_START, PipelineConfig
from flows.plan.nodes import Node
from flows.plan.refs import LastUse

SHOWN = 3
"""Reasons that are spelled out; the rest is counted."""


class _Missing:
    """A key that one side lacks; None is a value."""


MISSING: Final = _Missing()
Path = tuple[str, ...]

RENAMED: dict[str, str] = {
    "spec": "domains.{domain}",
    "specs": "domains",
    "tau": "tau.{domain}.{effort}",
    "tau_start": "tau.{domain}.{parent}",
    "conditioned": "condition_specialists",
    "conditioned_teachers": "condition_specialists",
    "prompt.message": "message",
    "prompt.tags": "tags",
    "prompt.efforts": "tiers",
    "efforts": "tiers",
    "distill": "consolidate",
    "merge": "consolidate",
}
"""Where a job's field stands in the pipeline's config, by its longest dotted prefix."""

RENAMED_IN_STAGE: dict[str, dict[str, str]] = {
    "sft": {"prompt.efforts": "sft.effort_words", "domains": "sft.domains"},
    "budget": {"prompt.efforts": "sft.effort_words"},
    "summary": {"tau": "tau", "bootstrap": "evaluate.bootstrap", "student": "consolidate.type", "caps": "cap_tokens"},
}


def shorten(reasons: list[str]) -> str:
    """The first few reasons on one line."""
    more = f" and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return ", ".join(reasons[:SHOWN]) + more


def field_changes(config: PipelineConfig, node: Node, last: LastUse, fields: Mapping[str, Any]) -> list[str]:
    """What differs in the key's own fields (all but the inputs) since the last use, one clause each."""
    changes = [f"{name} {last.fields[name]} -> {fields[name]}" for name in ("seed", "attempt") if
               last.fields[name] != fields[name]]  # fmt: skip
    if last.fields["version"] != fields["version"]:
        changes.insert(0, f"{node.stage} version {last.fields['version']} -> {fields['version']}")
    if last.fields.get("code") != fields.get("code") and fields.get("code") is not None:
        changes.append("code changed" if "code" in last.fields else "code counts now")
    differing = list(_differences(last.fields["config"], fields["config"]))
    told = [_clause(config, node, *item) for item in differing if _is_own(config, node, item[0], differing)]
    return changes + list(dict.fromkeys(told))


def input_changes(node: Node, last: LastUse, digests: Mapping[str, str], rerun: set[str]) -> list[str]:
    """What differs in the inputs since the last use.

    Args:
        digests: by input name; of parents that have to run themselves there is none.
        rerun: ids of the parents that have to run.
    """
    changes = []
    for name, ref in node.inputs.items():
        if ref.node in rerun:
            changes.append(f"{ref} changes")
        elif name not in last.parents:
            changes.append(f"{ref} is new")
        elif digests[name] != last.parents[name]["digest"]:
            changes.append(f"{ref} changed")
    gone = [parent for name, parent in last.parents.items() if name not in node.inputs]
    changes += [f"{parent.get('node') or 'file ' + parent['file']} is gone" for parent in gone]
    return list(dict.fromkeys(changes))


def _differences(old: Any, new: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """(path, old, new) of every leaf, or of a whole branch that one side lacks."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*new, *old]):
            yield from _differences(old.get(key, MISSING), new.get(key, MISSING), (*path, key))
    elif old != new:
        yield path, old, new


def _is_own(config: PipelineConfig, node: Node, path: Path, differing: list[tuple[Path, Any, Any]]) -> bool:
    """False for a field that only follows from another that is told anyway."""
    if path == ("cells",):
        return len(differing) == 1
    if path == ("tau_start",):
        assert node.effort is not None  # only a specialist has one
        annealing = config.rl_of(node.effort).annealing
        from_parent = annealing.steps > 0 and annealing.start == "parent"
        return from_parent and config.tiers[node.effort].start != COLD_START
    return True


def _clause(config: PipelineConfig, node: Node, path: Path, old: Any, new: Any) -> str:
    name = _name(config, node, path)
    if old is MISSING:
        return f"{name} added"
    if new is MISSING:
        return f"{name} removed"
    return f"{name} {_text(old)} -> {_text(new)}"


def _name(config: PipelineConfig, node: Node, path: Path) -> str:
    if path[0] == "caps" and len(path) == 2:
        return f"domains.{path[1]}.cap_tokens"
    if node.effort is not None and path[0] == "rl" and _is_set(config.tiers[node.effort].rl, path[1:]):
        return f"tiers.{node.effort}." + ".".join(path)
    table = RENAMED | RENAMED_IN_STAGE.get(node.stage, {})
    if node.id == f"evaluate.{COLD_START}":
        table = table | RENAMED_IN_STAGE["budget"]
    parent = config.tiers[node.effort].start if node.effort is not None else ""
    for length in range(len(path), 0, -1):
        known = table.get(".".join(path[:length]))
        if known is not None:
            head = known.format(domain=node.domain, effort=node.effort, parent=parent)
            return ".".join((head, *path[length:]))
    return ".".join(path)


def _is_set(values: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(values, dict):
            return True  # a whole branch was given as one value
        if part not in values:
            return False
        values = values[part]
    return True


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return "none" if value is None else str(value)

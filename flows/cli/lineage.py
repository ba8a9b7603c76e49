"""``ninefold lineage``: from an artifact back to data and code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.tree import Tree

from flows.cli.find import find_run, node_artifact, open_store
from flows.cli.options import StoreUrl, console
from flows.plan.nodes import PROMOTE
from infra.store.local import Artifact, Store
from stages.core.errors import CorruptArtifact
from stages.core.keys import digest_of
from stages.core.manifest import MANIFEST

SHORT = 12
"""Characters of a digest that are shown."""

LineageTarget = Annotated[
    str | None,
    typer.Argument(metavar="[RUN|CONFIG|STAGE/KEY|FOLDER]", help="None: the last product of the newest run."),
]


def lineage(target: LineageTarget = None, store_url: StoreUrl = None) -> None:
    """Print what an artifact was made from, down to data files and source code, with digests."""
    store, artifact = _start(target, store_url)
    tree = Tree(_label(artifact), guide_style="dim")
    _grow(tree, store, artifact, {artifact.path})
    console().print(tree)


def _start(target: str | None, url: str | None) -> tuple[Store, Artifact]:
    if target is not None and (Path(target) / MANIFEST).is_file():
        folder = Path(target).resolve()
        store = Store.open(str(folder.parent.parent))
        found = store.find(folder.parent.name, folder.name)
    elif target is not None and "/" in target and not Path(target).is_file():
        store = open_store(None, url)
        stage, _, key = target.partition("/")
        found = store.find(stage, key)
    else:
        store, record = find_run(target, url)
        made = [name for name, node in record.nodes.items() if node.digest is not None]
        return store, node_artifact(store, record, made[-1] if made else PROMOTE)
    if found is None:
        raise CorruptArtifact(f"artifact {target}", got=f"nothing in {store.root}", expected="STAGE/KEY of an artifact")
    return store, found


def _grow(tree: Tree, store: Store, artifact: Artifact, seen: set[Path]) -> None:
    """Hang the inputs of ``artifact`` under ``tree``; what was shown before is named only."""
    attempt, seed = artifact.manifest["fields"]["attempt"], artifact.manifest["fields"]["seed"]
    code: Mapping[str, str] = artifact.manifest["code"]
    tree.add(f"[dim]code {len(code)} files {digest_of(code)[:SHORT]}, seed {seed}, attempt {attempt}[/]")
    for name, parent in artifact.manifest["parents"].items():
        if "file" in parent:
            tree.add(f"{escape(name)}: [green]{escape(parent['file'])}[/] {parent['digest'][:SHORT]}")
            continue
        found = store.find(parent["stage"], parent["key"])
        where = f"{parent['stage']}/{parent['key']}"
        if found is None:
            tree.add(f"{escape(name)}: {parent['node']} [dim]{where}[/] [red]removed from the store[/]")
        elif found.path in seen:
            tree.add(f"{escape(name)}: {parent['node']} [dim]{where} (above)[/]")
        else:
            seen.add(found.path)
            _grow(tree.add(f"{escape(name)}: {_label(found)}"), store, found, seen)


def _label(artifact: Artifact) -> str:
    return f"[bold]{artifact.node}[/] [dim]{artifact.stage}/{artifact.key}[/] {artifact.digest[:SHORT]}"

"""A small real pipeline without training: every node is resolved and committed with bytes that follow from its key."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.config import PipelineConfig, load
from flows.plan import refs
from flows.plan.plan import Plan, make_plan
from infra.store.local import Artifact, Store

PIPELINE = Path(__file__).with_name("pipeline.yaml")
DOMAINS = ("general", "code", "agent")


@dataclass(frozen=True)
class Workspace:
    """A working directory with the quickstart's config, one-row data files and a store."""

    root: Path
    config_path: Path

    @property
    def store(self) -> Store:
        return Store(self.root / "store")

    def config(self, *overrides: str) -> PipelineConfig:
        return load(self.config_path, overrides)

    def data(self, domain: str, name: str) -> Path:
        return self.root / "data" / "micro" / domain / f"{name}.jsonl"

    def plan(self, *overrides: str, only: Sequence[str] = (), until: Sequence[str] = (), code: bool = False) -> Plan:
        return make_plan(self.config(*overrides), self.store, only=only, until=until, count_code=code)

    def make(self, plan: Plan, fill: Callable[[str, Path], None] | None = None) -> dict[str, Artifact]:
        """Commit every row of the plan, parents first, as a flow does. Returns all artifacts by node id.

        Args:
            fill: writes a node's files into its folder; else one file that holds the key.
        """
        made = dict(plan.artifacts)
        for row in plan.rows:
            resolved = plan.resolver.resolve(row.node, made)
            artifact = row.artifact
            if artifact is None:
                out = self.store.work_dir(resolved.key) / "out"
                out.mkdir(parents=True, exist_ok=True)
                (out / "weights").write_text(resolved.key)
                if fill is not None:
                    fill(row.node.id, out)
                artifact = self.store.commit(row.node.stage, resolved.key, out, resolved.about(seconds=2.0))
                self.store.discard_work(resolved.key)
            made[row.node.id] = artifact
            refs.write(self.store, "quickstart", resolved, artifact)
        return made


def lay_out(root: Path) -> Workspace:
    """The quickstart's config and one-row data files."""
    shutil.copy(PIPELINE, root / "quickstart.yaml")
    space = Workspace(root, root / "quickstart.yaml")
    for domain in DOMAINS:
        for name in ("problems", "heldout", "demonstrations"):
            path = space.data(domain, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"id": "{domain}-{name}-1"}}\n')
    return space

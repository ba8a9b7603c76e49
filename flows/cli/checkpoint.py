"""From what a person typed to a model folder, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.find import CONFIG_SUFFIXES, find_run, node_artifact
from flows.config import PipelineConfig, load
from flows.plan.nodes import PROMOTE
from stages.core import manifest
from stages.core.config import parse
from stages.core.errors import ConfigError
from stages.tasks.config import PromptConfig
from stages.tasks.template import saved_effort

EXPORTED = "model"
"""Where an exported artifact has its model folder."""

CheckpointArg = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A model folder; or a run id or config: its student, as exported where it was.",
        show_default=False,
    ),
]
NodeOption = Annotated[
    str | None, typer.Option(metavar="NODE", help="Another checkpoint of the run, e.g. rl.code.low.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="CONFIG", help="YAML config with the domains; else the run's own."),
]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder."""

    folder: Path
    node: str | None
    """The plan node that made it; None: none of ours, or an exported folder."""
    config: PipelineConfig | None
    """What the command named, else that of the run it is from."""
    prompt: PromptConfig
    """The efforts that its chat template takes, with the config's tags."""

    def domains(self) -> PipelineConfig:
        """The config, for a command that cannot do without.

        Raises:
            ConfigError: there is none.
        """
        if self.config is None:
            raise ConfigError("--config", got="nothing", expected="a config that knows the domains", fix="name one")
        return self.config

    def check_effort(self, effort: str) -> None:
        """Raises:
        ConfigError: the chat template does not take it.
        """
        if effort not in self.prompt.efforts:
            known = ", ".join(self.prompt.efforts)
            raise ConfigError(
                f"--effort {effort}",
                got="an unknown effort",
                expected=f"one of {known}" if known else f"none: the chat template in {self.folder} takes no effort",
            )


def find_checkpoint(target: str, node: str | None, config: Path | None, store_url: str | None) -> Checkpoint:
    """The model folder that ``target`` means.

    Raises:
        ConfigError: there is none.
    """
    given = load(config) if config is not None else None
    if Path(target).is_dir():
        if node is not None:
            raise ConfigError(f"--node {node}", got=f"the folder {target}", expected="a run id or a config beside it")
        return _checkpoint(Path(target), given)
    if len(Path(target).parts) > 1 and Path(target).suffix not in CONFIG_SUFFIXES:
        raise ConfigError(f"checkpoint {target}", got="no such folder", expected="a model folder, a run id or a config")
    store, record = find_run(target, store_url)
    pipeline = given or parse(PipelineConfig, record.config, f"run {record.run_id}")
    if node is None:
        exported = record.nodes.get(PROMOTE)
        node = PROMOTE if exported is not None and exported.digest is not None else pipeline.consolidate.type
    return _checkpoint(node_artifact(store, record, node).path, pipeline)


def _checkpoint(folder: Path, config: PipelineConfig | None) -> Checkpoint:
    made = manifest.read(folder) or {}
    model = folder / EXPORTED if (folder / EXPORTED).is_dir() else folder
    if not (model / "config.json").is_file():
        raise ConfigError(f"checkpoint {folder}", got="no config.json there", expected="a model folder")
    prompt = saved_effort(model)
    if config is not None:
        prompt = prompt.model_copy(update={"tags": config.tags})
    return Checkpoint(model, made.get("node"), config, prompt)

"""``ninefold config schema | show | check``."""

from __future__ import annotations

import json

import typer
import yaml

from flows.cli.options import ConfigPath, Overrides
from flows.config import PipelineConfig, load
from flows.plan.nodes import build_nodes
from flows.plan.preflight import check_data
from infra.store.local import Store

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Print the schema of configs, show or check one.")


@app.command()
def schema() -> None:
    """Print the JSON schema of a config, each field with its meaning; editors complete and check YAML with it."""
    print(json.dumps(PipelineConfig.model_json_schema(), indent=2))


@app.command()
def show(config: ConfigPath, overrides: Overrides = None) -> None:
    """Print the config with every default and override filled in."""
    values = load(config, overrides or ()).model_dump(mode="json", by_alias=True)
    print(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), end="")


@app.command()
def check(config: ConfigPath, overrides: Overrides = None) -> None:
    """Check a config, its data files and its store's address; run nothing."""
    pipeline = load(config, overrides or ())
    Store.open(pipeline.store)
    nodes = build_nodes(pipeline)
    check_data(pipeline, nodes)
    domains, efforts = ", ".join(pipeline.domains), ", ".join(pipeline.efforts)
    print(f"ok: {pipeline.name}: domains {domains}; efforts {efforts}; {len(nodes)} artifacts")

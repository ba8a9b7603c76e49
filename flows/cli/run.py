"""``ninefold run | retrain | ui``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Code, CodeOption, ConfigPath, Only, Overrides, StoreUrl, Until, console
from flows.config import load
from flows.outcome import UI
from flows.plan import attempts
from flows.plan.select import cells
from flows.recorder import tracking_uri
from flows.start import Request, start
from infra.store.local import Store
from infra.tracking.ui import is_server, serve


def run(
    config: ConfigPath,
    overrides: Overrides = None,
    only: Only = None,
    until: Until = None,
    code: CodeOption = Code.record,
) -> None:
    """Make everything that a config asks for and is not there yet; the same command goes on after any interruption."""
    _start(config, overrides or [], only or [], until or [], code)


def retrain(
    config: ConfigPath,
    effort: Annotated[list[str], typer.Option(metavar="EFFORT", help="Tier to train anew; may be repeated.")],
    domain: Annotated[
        list[str] | None, typer.Option(metavar="DOMAIN", help="Only in this domain; may be repeated.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Train a tier's specialists anew, as a new attempt with draws of its own, then what depends on them.

    To go on after an interruption use ``ninefold run``: this command begins yet another attempt.
    """
    pipeline = load(config, overrides or ())
    store = Store.open(pipeline.store)
    store.check_writable()
    nodes = cells(pipeline, effort, domain or ())
    for node, number in attempts.start_new(store, pipeline.name, nodes).items():
        print(f"{node}: attempt {number}")
    _start(config, overrides or [], [], [], Code.record)


def ui(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="YAML config of the pipeline.", show_default=False)
    ] = None,
    store_url: StoreUrl = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = int(UI.rpartition(":")[2]),
) -> None:
    """Start a light MLflow server on the recorded runs, in the foreground; Ctrl-C ends it."""
    pipeline = load(config) if config else None
    store = Store.open(store_url or (pipeline.store if pipeline else "store"))
    uri = tracking_uri(pipeline, store)
    if is_server(uri):
        print(f"the tracking server has a UI of its own: {uri}")
        return
    print(f"MLflow of {uri} at http://127.0.0.1:{port} (Ctrl-C ends it)")
    raise typer.Exit(serve(uri, port))


def _start(config: Path, overrides: list[str], only: list[str], until: list[str], code: Code) -> None:
    options = [("--set", overrides), ("--only", only), ("--until", until)]
    given = itertools.chain.from_iterable((option, value) for option, values in options for value in values)
    arguments = ["run", str(config), *given, *(["--code", code.value] if code is not Code.record else [])]
    request = Request(load(config, overrides), str(config), arguments, only, until, code is Code.rebuild)
    start(request, console())

"""``ninefold generate | evaluate``: a checkpoint in a worker of its own, over a temporary run folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.checkpoint import Checkpoint, CheckpointArg, ConfigOption, NodeOption, find_checkpoint
from flows.cli.compare import interval
from flows.cli.options import Json, StoreUrl, console
from flows.config import PipelineConfig, ResourcesConfig
from flows.once import run_once
from flows.plan.nodes import PROMOTE, Node, Ref, build_nodes
from flows.plan.preflight import check_data
from flows.plan.stages import STAGES
from stages.core.errors import ConfigError
from stages.core.files import read_json, read_jsonl
from stages.evaluate.config import EvaluateConfig, EvaluateJob
from stages.generate.config import GenerateJob
from stages.tasks.config import CellConfig

GENERATE = "stages.generate.stage"
MARKS = {True: "[green]right[/]", False: "[red]wrong[/]", None: "unscored"}


def generate(
    checkpoint: CheckpointArg,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROMPT]...",
            help="None: with --domain its first held-out problems, else the lines of stdin.",
            show_default=False,
        ),
    ] = None,
    effort: Annotated[str | None, typer.Option(help="None: the chat template's default.")] = None,
    domain: Annotated[str | None, typer.Option(help="Its environment answers; its cap and its count hold.")] = None,
    config: ConfigOption = None,
    node: NodeOption = None,
    problems: Annotated[int, typer.Option("--n-problems", min=1, help="How many held-out problems.")] = 3,
    samples: Annotated[int, typer.Option("--n", min=1, help="Responses to each prompt.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="0: greedy.")] = 1.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Cap on one response; else the domain's, else what the context leaves.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides every draw.")] = 0,
    as_json: Json = False,
    store_url: StoreUrl = None,
) -> None:
    """Sample from a checkpoint at an effort: its own prompts, or held-out problems with right or wrong."""
    found = find_checkpoint(checkpoint, node, config, store_url)
    if effort is not None:
        found.check_effort(effort)
    spec = None if domain is None else found.domains().domains[_known("--domain", domain, found.domains().domains)]
    asked = tuple(prompts or (() if domain is not None else _lines()))
    job = GenerateJob(
        prompts=asked, problems=problems, domain=domain, spec=spec, effort=effort, samples=samples,
        temperature=temperature, max_tokens=max_tokens, prompt=found.prompt,
    )  # fmt: skip
    inputs = {"model": found.folder}
    if spec is not None and not asked:
        check_data(found.domains(), [_node("generate", job, {"heldout": spec.heldout})])
        inputs["heldout"] = Path(spec.heldout)
    with run_once("generate", GENERATE, job, inputs, seed, _resources(found)) as out:
        responses = list(read_jsonl(out / "responses.jsonl"))
    if as_json:
        print(json.dumps(responses, indent=2, ensure_ascii=False))
        return
    for response in responses:
        _print_response(domain, response, found.prompt.tags.close)


def _lines() -> Sequence[str]:
    """The prompts of standard input, one a line.

    Raises:
        ConfigError: it has none.
    """
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if not lines:
        raise ConfigError("PROMPT", got="none, nor a line on stdin", expected="one", fix="or name a --domain")
    return lines


def _print_response(domain: str | None, item: Mapping[str, Any], close: str) -> None:
    screen = console()
    head = f"{domain or 'prompt'} {item['problem']}  sample {item['sample']}  effort {item['effort'] or 'none'}"
    screen.print(f"\n[bold]{escape(head)}[/]  {escape(item['prompt'])}")
    thinking, tag, rest = item["response"].partition(close)
    screen.print(f"[dim]{escape(thinking + tag)}[/]{escape(rest)}")
    parts = [f"[bold]answer[/] {escape(item['answer'])}"]
    if item["expected"] is not None:
        parts.append(f"[bold]expected[/] {escape(item['expected'])}  {MARKS[item['correct']]}")
    cut = " (cut off)" if item["truncated"] else ""
    parts.append(f"[bold]tokens[/] {item['tokens']} counted, {item['answer_tokens']} of answer{cut}")
    screen.print("  ".join([*parts, escape(item["reason"] or "")]).rstrip())


def evaluate(
    checkpoint: CheckpointArg,
    config: ConfigOption = None,
    effort: Annotated[list[str] | None, typer.Option(help="Only at this effort; may be repeated.")] = None,
    domain: Annotated[list[str] | None, typer.Option(help="Only in this domain; may be repeated.")] = None,
    node: NodeOption = None,
    problems: Annotated[int | None, typer.Option(min=1, help="Of each domain; else the config's number.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0: greedy; else the config's.")] = None,
    as_json: Json = False,
    store_url: StoreUrl = None,
) -> None:
    """Measure a checkpoint on held-out problems, as the pipeline does: a checkpoint of a run in the cells that the
    pipeline measures it in, any other at every effort that its chat template takes."""
    found = find_checkpoint(checkpoint, node, config, store_url)
    pipeline = found.domains()
    changed = {"problems": problems, "temperature": temperature}
    settings = pipeline.evaluate.model_copy(update={key: value for key, value in changed.items() if value is not None})
    job = _narrowed(_whole(found, pipeline), settings, domain or (), effort or ())
    files = {f"heldout.{name}": spec.heldout for name, spec in job.specs.items()}
    check_data(pipeline, [_node("evaluate", job, files)])
    inputs = {"model": found.folder, **{name: Path(file) for name, file in files.items()}}
    with run_once("evaluate", STAGES["evaluate"].module, job, inputs, pipeline.seed, _resources(found)) as out:
        metrics = read_json(out / "metrics.json")
    if as_json:
        print(json.dumps(metrics, indent=2))
        return
    console().print(_table(job, metrics))


def _whole(found: Checkpoint, pipeline: PipelineConfig) -> EvaluateJob:
    """Every cell of the checkpoint: the pipeline's own, else domains x efforts of the chat template."""
    model = pipeline.consolidate.type if found.node == PROMOTE else found.node
    for item in build_nodes(pipeline):
        if isinstance(item.job, EvaluateJob) and item.inputs["model"].node == model:
            return item.job
    efforts = found.prompt.efforts
    return EvaluateJob(
        evaluate=pipeline.evaluate,
        subject=str(found.folder),
        cells=tuple(CellConfig(domain=name, effort=word) for name in pipeline.domains for word in efforts or (None,)),
        conditioned=bool(efforts),
        specs=pipeline.domains,
        prompt=found.prompt,
    )


def _narrowed(
    job: EvaluateJob, settings: EvaluateConfig, domains: Sequence[str], efforts: Sequence[str]
) -> EvaluateJob:
    """The job with the cells that were asked for.

    Raises:
        ConfigError: a name that none of its cells has.
    """
    for name in domains:
        _known("--domain", name, [cell.domain for cell in job.cells])
    for name in efforts:
        _known("--effort", name, [cell.effort for cell in job.cells if cell.effort is not None])
    cells = tuple(
        cell
        for cell in job.cells
        if (not domains or cell.domain in domains) and (not efforts or cell.effort in efforts)
    )
    specs = {cell.domain: job.specs[cell.domain] for cell in cells}
    return job.model_copy(update={"evaluate": settings, "cells": cells, "specs": specs})


def _known(option: str, name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    if name not in names:
        expected = f"one of {', '.join(dict.fromkeys(names))}" if names else "none for this checkpoint"
        raise ConfigError(f"{option} {name}", got="an unknown name", expected=expected)
    return name


def _node(name: str, job: EvaluateJob | GenerateJob, files: Mapping[str, str]) -> Node:
    """The job as a plan would have it, for the look at its data files."""
    return Node(name, name, job, {key: Ref(file=file) for key, file in files.items()}, slots=1, priority=0)


def _resources(found: Checkpoint) -> ResourcesConfig:
    return found.config.resources if found.config is not None else ResourcesConfig()


def _table(job: EvaluateJob, metrics: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("cell", "accuracy, % [95%]", "tokens, mean [95%]", "p90", "cut off", "problems"):
        table.add_column(escape(title), no_wrap=True, justify="left" if title == "cell" else "right")
    for cell in job.cells:
        item = metrics[cell.name]
        tokens = item["tokens"]
        table.add_row(
            cell.name,
            interval(item["accuracy"], 100, 1),
            interval({"value": tokens["mean"], "low": tokens["low"], "high": tokens["high"]}, 1, 1),
            f"{tokens['p90']:.0f}",
            f"{item['truncated_share']:.1%}",
            str(item["problems"]),
        )
    return table

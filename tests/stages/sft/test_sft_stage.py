"""Oracles: the loss computed row by row, an uninterrupted run, plain transformers."""

from __future__ import annotations

import dataclasses
import json
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from infra.engines import build
from stages.core.context import METRICS, StageContext
from stages.core.errors import DataError, Terminated
from stages.core.files import read_jsonl
from stages.core.ports import Ports, TrainEngine
from stages.sft import stage
from stages.sft.config import SFTConfig, SFTJob
from stages.tasks.config import PromptConfig
from stages.train.config import BatchConfig, MicroBase, OptimizerConfig, PretrainedBase

EFFORTS = ("low", "high", "max")
BASE = MicroBase(hidden=16, heads=2, kv_heads=1, layers=1, intermediate=24, context=64, init_std=0.2)
MakeContext = Callable[[Mapping[str, Path]], StageContext]


def job(base: MicroBase | PretrainedBase = BASE, **fields: Any) -> SFTJob:
    settings = {"steps": 4, "batch_rows": 8, "optimizer": OptimizerConfig(lr=1e-2)} | fields
    return SFTJob(base=base, sft=SFTConfig(**settings), prompt=PromptConfig(efforts=EFFORTS), domains=("x", "y"))


@pytest.fixture
def context(make_context: MakeContext, tmp_path: Path) -> StageContext:
    """Two domains of rows of many lengths, and the single-process engine."""
    draw = random.Random(0)
    inputs = {}
    for domain in ("x", "y"):
        rows = [
            {
                "id": str(number),
                "prompt": " ".join(draw.choices("abcde", k=3)),
                "response": " ".join([*draw.choices("abcde", k=draw.randint(3, 20)), "</think>", "a"]),
                "weight": draw.choice([1.0, 2.0]),
            }
            for number in range(20)
        ]
        inputs[f"demonstrations.{domain}"] = tmp_path / f"{domain}.jsonl"
        inputs[f"demonstrations.{domain}"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = make_context(inputs)

    def engine(model: Any, config: OptimizerConfig) -> TrainEngine:
        return build({"engine": "single"}, "cpu", model, config)

    return dataclasses.replace(made, ports=Ports(engine, made.ports.sampler, made.ports.sandbox))


def beside(context: StageContext, name: str) -> StageContext:
    """The same stage in another run folder."""
    run_dir = context.run_dir.with_name(name)
    (run_dir / "out").mkdir(parents=True)
    return dataclasses.replace(context, run_dir=run_dir, log=type(context.log)(run_dir), stop=type(context.stop)())


def metrics(context: StageContext) -> list[dict[str, float]]:
    return [record["metrics"] for record in read_jsonl(context.run_dir / METRICS)]


def weights(context: StageContext) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(context.out).state_dict())


def test_it_learns_and_leaves_a_model_folder(context: StageContext) -> None:
    summary = stage.run(job(steps=40, optimizer=OptimizerConfig(type="muon", lr=1e-2)), context)
    losses = [item["loss"] for item in metrics(context)]
    assert losses[-1] < 0.7 * losses[0]
    assert summary["loss"] == losses[-1]
    assert summary["rows"] == 40
    assert summary["parameters"] == AutoModelForCausalLM.from_pretrained(context.out).num_parameters()
    tokenizer = AutoTokenizer.from_pretrained(context.out)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "a b"}], reasoning_effort="low", add_generation_prompt=True, tokenize=False
    )
    assert text == "<option> Reasoning effort: low <end> <user> a b <assistant> <think>"
    with pytest.raises(Exception, match="expected one of low, high, max"):
        tokenizer.apply_chat_template([{"role": "user", "content": "a"}], reasoning_effort="ultra", tokenize=False)


def test_first_loss_is_the_weighted_mean_over_all_tokens(context: StageContext) -> None:
    """Row by row, with transformers alone, on the weights before the first step."""
    settings = job(steps=1, optimizer=OptimizerConfig(lr=1e-30))
    stage.run(settings, context)
    model = AutoModelForCausalLM.from_pretrained(context.out)  # moved by 1e-30: not at all
    renderer = stage.Renderer(AutoTokenizer.from_pretrained(context.out), settings.prompt)
    demonstrations = {
        name: stage.load_demonstrations(context.inputs[f"demonstrations.{name}"], name) for name in ("x", "y")
    }
    corpus = stage.build_corpus(demonstrations, renderer, EFFORTS, 64)
    loss = weight = right = count = 0.0
    for row in stage.draw_rows(corpus, renderer, settings.sft, context.seed, 0):
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(row.token_ids)[None]).logits[0].double()
        for position in row.weights.nonzero()[0]:
            target = int(row.token_ids[position])
            loss -= row.weights[position] * float(torch.log_softmax(logits[position - 1], -1)[target])
            weight += row.weights[position]
            right += int(logits[position - 1].argmax()) == target
            count += 1
    (logged,) = metrics(context)
    assert logged["loss"] == pytest.approx(loss / weight, abs=1e-5)
    assert logged["token_accuracy"] == pytest.approx(right / count)
    assert logged["tokens"] == count / 8


def test_result_does_not_depend_on_the_micro_batches(context: StageContext) -> None:
    whole, cut = beside(context, "whole"), beside(context, "cut")
    stage.run(job(steps=1, batch=BatchConfig(micro_batch_tokens=100_000)), whole)
    stage.run(job(steps=1, batch=BatchConfig(micro_batch_tokens=30)), cut)
    assert metrics(cut)[0]["loss"] == pytest.approx(metrics(whole)[0]["loss"], abs=1e-6)
    assert metrics(cut)[0]["grad_norm"] == pytest.approx(metrics(whole)[0]["grad_norm"], rel=1e-6)


def test_stopped_and_resumed_it_gives_the_same_bits(context: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = beside(context, "whole"), beside(context, "cut")
    expected = stage.run(job(), whole)
    original = stage.ColdStart.step

    def stopping(self: stage.ColdStart, step: int) -> Mapping[str, float]:
        if step == 1:
            cut.stop._note(signal.SIGTERM, None)
        return original(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(stage.ColdStart, "step", stopping)
        with pytest.raises(Terminated):
            stage.run(job(), cut)
    assert len(metrics(cut)) == 2
    assert stage.run(job(), dataclasses.replace(cut, stop=type(cut.stop)())) == expected
    assert metrics(cut) == metrics(whole)
    before = weights(whole)
    assert all(torch.equal(value, before[name]) for name, value in weights(cut).items())


def test_a_pretrained_base_keeps_its_tokenizer_and_dtype(
    context: StageContext, make_model_folder: Callable[..., Path]
) -> None:
    folder = make_model_folder("base", words=["a b c d e"])
    with_base = dataclasses.replace(context, inputs={**context.inputs, "base": folder})
    stage.run(job(PretrainedBase(type="hf", path="moved away since", dtype="bfloat16")), with_base)
    assert AutoModelForCausalLM.from_pretrained(context.out, dtype="auto").dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(context.out).get_vocab() == AutoTokenizer.from_pretrained(folder).get_vocab()


def test_data_that_never_fits_is_an_error(context: StageContext) -> None:
    """The shortest row: effort message 5, prompt 6, response 5, EOS."""
    with pytest.raises(DataError, match="context of 16 tokens"):
        stage.run(job(BASE.model_copy(update={"context": 16})), context)

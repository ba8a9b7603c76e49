"""The merge stage on real model folders. Oracle: the cold start's own files, plain transformers, a textbook average."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from stages.core.context import EVENTS
from stages.core.errors import ConfigError, DataError, NinefoldError
from stages.merge.config import MergeConfig, MergeJob
from stages.merge.stage import run
from stages.tasks.config import CellConfig, PromptConfig

CELLS = tuple(CellConfig(domain="general", effort=effort) for effort in ("low", "high", "max"))
PROMPT = PromptConfig(efforts=("low", "high", "max"))
WEIGHTS = "model.safetensors"


def job(**merge) -> MergeJob:
    return MergeJob(merge=MergeConfig(type="merge", **merge), cells=CELLS, prompt=PROMPT)


@pytest.fixture
def siblings(make_model_folder):
    """Inputs: a cold start and three specialists of other weights, whose templates know only their own effort."""
    own = {cell.name: PromptConfig(efforts=(cell.effort,)) for cell in CELLS}
    inputs = {"model": make_model_folder("cold", prompt=PromptConfig())}
    for seed, name in enumerate(own, start=1):
        inputs[f"teacher.{name}"] = make_model_folder(name, seed=seed, prompt=own[name])
    return inputs


def test_the_result_is_a_whole_model_of_the_weighted_average(siblings, make_context):
    context = make_context(siblings)
    summary = run(job(weights={"general.max": 2.0}), context)
    result = load_file(context.out / WEIGHTS)
    parents = [load_file(siblings[f"teacher.{cell.name}"] / WEIGHTS) for cell in CELLS]
    for name, tensor in result.items():
        expected = sum(w * parent[name].double() for w, parent in zip((0.25, 0.25, 0.5), parents, strict=True))
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-6, atol=1e-7)
    assert summary["weights"] == {"general.low": 0.25, "general.high": 0.25, "general.max": 0.5}
    assert summary["tensors"] == len(result)


def test_plain_transformers_loads_it_with_head_endings_and_template(siblings, make_context):
    context = make_context(siblings)
    run(job(), context)
    model, info = AutoModelForCausalLM.from_pretrained(context.out, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert "lm_head.weight" not in load_file(context.out / WEIGHTS)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    cold = GenerationConfig.from_pretrained(siblings["model"])
    assert model.generation_config.eos_token_id == cold.eos_token_id
    tokenizer = AutoTokenizer.from_pretrained(context.out)
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(siblings["model"]).get_vocab()
    message = [{"role": "user", "content": "a"}]
    texts = {
        effort: tokenizer.apply_chat_template(message, tokenize=False, reasoning_effort=effort)
        for effort in PROMPT.efforts
    }
    assert len(set(texts.values())) == 3


def test_equal_parents_come_back_bit_for_bit(make_model_folder, make_context):
    folder = make_model_folder("cold", dtype="bfloat16")
    context = make_context({"model": folder} | {f"teacher.{cell.name}": folder for cell in CELLS})
    run(job(weights={"general.low": 0.3}), context)
    assert (context.out / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()


def refused(inputs, make_context, error: type[NinefoldError], message: str, **merge) -> None:
    """The error, and an empty output folder."""
    context = make_context(inputs)
    with pytest.raises(error, match=message):
        run(job(**merge), context)
    assert list(context.out.iterdir()) == []


def test_an_unknown_cell_is_refused(siblings, make_context):
    refused(siblings, make_context, ConfigError, r"weights\.general\.medium", weights={"general.medium": 1})


def test_a_missing_specialist_is_refused(siblings, make_context):
    del siblings["teacher.general.high"]
    refused(siblings, make_context, DataError, r"cell general\.high: got no specialist")


def test_another_shape_is_refused_by_tensor(siblings, make_context, make_model_folder):
    siblings["teacher.general.high"] = make_model_folder("wide", intermediate=32)
    refused(
        siblings, make_context, DataError, r"general\.high: .*mlp\.down_proj\.weight: got F32 \[16, 32\].*\[16, 24\]"
    )


def test_another_depth_is_refused_by_tensor(siblings, make_context, make_model_folder):
    siblings["teacher.general.high"] = make_model_folder("flat", layers=1)
    refused(siblings, make_context, DataError, r"general\.high: model\.layers\.1.*got no such tensor")


def test_another_dtype_is_refused(siblings, make_context, make_model_folder):
    siblings["teacher.general.high"] = make_model_folder("half", dtype="bfloat16")
    refused(siblings, make_context, DataError, r"general\.high: .*got BF16 .*expected F32")


def test_other_tokens_are_refused_by_token(siblings, make_context, make_model_folder):
    """The same number of words, one of them another."""
    siblings["teacher.general.max"] = make_model_folder("other", words=("a", "b", "d"))
    refused(siblings, make_context, DataError, r"general\.max: tokenizer: got id None for 'c'")


def test_a_flag_that_disagrees_with_the_files_is_refused(siblings, make_context):
    path = siblings["teacher.general.low"] / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    refused(siblings, make_context, DataError, r"general\.low: .*tie_word_embeddings false and no lm_head\.weight")


def test_a_tied_parent_among_untied_ones_is_refused(siblings, make_context):
    for name, folder in siblings.items():
        tensors = load_file(folder / WEIGHTS)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        save_file(tensors, folder / WEIGHTS, {"format": "pt"})
        path = folder / "config.json"
        tied = name == "teacher.general.max"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": tied}))
    refused(siblings, make_context, DataError, r"general\.max: config\.json: got tie_word_embeddings True")


def test_a_damaged_specialist_is_refused(siblings, make_context):
    path = siblings["teacher.general.high"] / WEIGHTS
    tensors = load_file(path)
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, path, {"format": "pt"})
    refused(siblings, make_context, DataError, r"general\.high: model\.norm\.weight: got 1 of 16 values NaN")


def test_a_cold_start_without_generation_config_is_refused(siblings, make_context):
    (siblings["model"] / "generation_config.json").unlink()
    refused(siblings, make_context, DataError, r"got no generation_config\.json")


def test_weights_are_logged_before_the_work(siblings, make_context):
    context = make_context(siblings)
    run(job(normalize=False), context)
    (event,) = [json.loads(line) for line in (context.run_dir / EVENTS).read_text().splitlines()]
    assert (event["event"], event["normalize"]) == ("merge_weights", False)
    assert event["weights"] == {cell.name: 1.0 for cell in CELLS}

"""Oracle: plain transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages.core.config import parse
from stages.core.errors import ConfigError, DataError, StageFailed
from stages.tasks.config import PromptConfig
from stages.tasks.prompts import Renderer, set_template
from stages.tasks.tokenizer import build_word_tokenizer
from stages.train.config import MicroBase
from stages.train.model import create_micro, load_model, load_tokenizer, save_model

PROMPT = PromptConfig(efforts=("low", "high"))
BASE = MicroBase(hidden=16, heads=2, kv_heads=1, layers=2, intermediate=24, context=64, rope_theta=500.0)


def make(seed: int = 0, base: MicroBase = BASE):  # type: ignore[no-untyped-def]
    tokenizer = build_word_tokenizer(["a b c"], PROMPT)
    set_template(tokenizer, PROMPT)
    ids = tokenizer.eos_token_id, tokenizer.pad_token_id
    return create_micro(base, len(tokenizer), *ids, seed, "cpu"), tokenizer


def test_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(5)
    first, _ = make(seed=1)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1)), "the global generator was moved"
    again, other = make(seed=1)[0].state_dict(), make(seed=2)[0].state_dict()
    assert all(torch.equal(value, again[name]) for name, value in first.state_dict().items())
    assert not torch.equal(first.state_dict()["lm_head.weight"], other["lm_head.weight"])


def test_shape_of_the_micro_model() -> None:
    """About .2257 M parameters with the default shape and 52 words: worked out layer by layer.

    A layer: q 96x96, k and v 96x48 each, o 96x96, QK-norms 2x24, MLP 3x96x288, two norms of 96.
    """
    model = create_micro(MicroBase(), 52, eos_id=1, pad_id=0, seed=0, device="cpu")
    layer = 2 * 96 * 96 + 2 * 96 * 48 + 2 * 24 + 3 * 96 * 288 + 2 * 96
    assert sum(value.numel() for value in model.parameters()) == 52 * 96 + 2 * layer + 96
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.rope_parameters["rope_theta"] == 1000.0
    assert float(model.model.layers[0].mlp.up_proj.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert not model.training


@pytest.mark.parametrize("shape", [{"hidden": 100}, {"hidden": 12, "heads": 4}, {"kv_heads": 3}])
def test_a_shape_that_cannot_be_built_is_refused(shape: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="base"):
        parse(MicroBase, shape, "base")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_plain_transformers_loads_what_was_saved(tmp_path: Path, dtype: str) -> None:
    model, tokenizer = make(base=BASE.model_copy(update={"dtype": dtype}))
    save_model(model, tokenizer, tmp_path)
    for loaded in (AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto"), load_model(tmp_path, "cpu")):
        assert loaded.dtype == getattr(torch, dtype)
        assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
        assert loaded.generation_config.eos_token_id == [tokenizer.eos_token_id]
        assert loaded.generation_config.pad_token_id == tokenizer.pad_token_id
    for words in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)):
        assert words.get_vocab() == tokenizer.get_vocab()
        assert words.chat_template == tokenizer.chat_template
        assert Renderer(words, PROMPT).prompt_ids("a b", "low") == Renderer(tokenizer, PROMPT).prompt_ids("a b", "low")


def test_further_end_tokens_are_kept(tmp_path: Path) -> None:
    model, tokenizer = make()
    model.generation_config.eos_token_id = [7, tokenizer.eos_token_id]
    save_model(model, tokenizer, tmp_path)
    assert load_model(tmp_path, "cpu").generation_config.eos_token_id == sorted([7, tokenizer.eos_token_id])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_weight_is_named_and_nothing_is_written(tmp_path: Path, bad: float) -> None:
    model, tokenizer = make()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = bad
    with pytest.raises(StageFailed, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        save_model(model, tokenizer, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        load_model(tmp_path, "cpu")
    with pytest.raises(DataError, match=str(tmp_path)):
        load_tokenizer(tmp_path)


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    """transformers would make them up."""
    model, _ = make()
    state = {name: value for name, value in model.state_dict().items() if "layers.1.mlp.up_proj" not in name}
    del state["lm_head.weight"]
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(DataError, match=r"no weights for model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(tmp_path, "cpu")

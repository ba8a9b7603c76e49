"""Oracles: torch's own optimisers applied by hand, and float64 sums."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from infra.engines import build
from infra.engines.optimizer import muon_names
from infra.engines.single import SingleEngine
from stages.core.errors import ConfigError
from stages.train.config import OptimizerConfig

IDS = torch.tensor([[3, 4, 5, 6, 7, 8]])


def make(dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen3ForCausalLM(config).to(dtype).eval()


def loss_of(model: torch.nn.Module, scale: float = 1.0) -> torch.Tensor:
    logits = model(input_ids=IDS).logits.float()
    return scale * torch.nn.functional.cross_entropy(logits[0, :-1], IDS[0, 1:])


def train(engine: SingleEngine, *scales: float) -> None:
    for scale in scales:
        engine.backward(loss_of(engine.model), last=True)
        engine.step(scale)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_adamw_is_torchs_with_clipping_and_no_decay_on_norms() -> None:
    config = OptimizerConfig(lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3, clip_norm=0.05)
    engine = SingleEngine(make(), config, "cpu")
    train(engine, 1.0, 0.5)

    model = make()
    parameters = list(model.parameters())
    groups = [
        {"params": [value for value in parameters if value.ndim == 2], "weight_decay": 0.3},
        {"params": [value for value in parameters if value.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.9))
    for scale in (1.0, 0.5):
        optimizer.zero_grad()
        loss_of(model).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.05)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * scale
        optimizer.step()
    for name, value in engine.model.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], atol=1e-7, rtol=0)


def test_muon_takes_the_matrices_inside_the_blocks() -> None:
    names = muon_names(make())
    matrices = ("q_proj", "k_proj", "v_proj", "o_proj")
    expected = {f"model.layers.{layer}.self_attn.{name}.weight" for layer in (0, 1) for name in matrices}
    expected |= {f"model.layers.{layer}.mlp.{name}_proj.weight" for layer in (0, 1) for name in ("gate", "up", "down")}
    assert names == expected


def test_muon_is_torchs_and_the_rest_moves_by_adamw() -> None:
    config = OptimizerConfig(type="muon", lr=1e-3, muon_lr=1e-2, weight_decay=0.3, clip_norm=0.05)
    engine = SingleEngine(make(), config, "cpu")
    train(engine, 0.5)

    model = make()
    loss_of(model).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    inside = {name: value for name, value in model.named_parameters() if "layers" in name and value.ndim == 2}
    norms = [value for value in model.parameters() if value.ndim == 1]
    torch.optim.Muon(inside.values(), lr=0.5e-2, weight_decay=0.3).step()
    embedding = {"params": [model.get_input_embeddings().weight], "weight_decay": 0.3}
    groups = [embedding, {"params": norms, "weight_decay": 0.0}]
    torch.optim.AdamW(groups, lr=0.5e-3, betas=config.betas).step()
    for name, value in engine.model.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], atol=1e-7, rtol=0)


def test_gradient_is_the_sum_over_backward_calls() -> None:
    one, many = (SingleEngine(make(), OptimizerConfig(lr=1e-2), "cpu") for _ in range(2))
    one.backward(loss_of(one.model), last=True)
    for part in range(4):
        many.backward(loss_of(many.model, 0.25), last=part == 3)
    assert many.step(1.0).grad_norm == pytest.approx(one.step(1.0).grad_norm, rel=1e-6)


def test_learning_rate_and_norm_are_reported() -> None:
    engine = SingleEngine(make(), OptimizerConfig(lr=1e-2, clip_norm=1e-3), "cpu")
    loss_of(engine.model).backward()
    gradients = [value.grad.double() for value in engine.model.parameters() if value.grad is not None]
    expected = float(sum((value**2).sum() for value in gradients)) ** 0.5
    stats = engine.step(0.25)
    assert stats.learning_rate == 2.5e-3
    assert stats.grad_norm == pytest.approx(expected, rel=1e-5)
    assert not stats.skipped


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_changes_nothing(dtype: torch.dtype, bad: float) -> None:
    """Weights, optimiser and the next step are those of an engine that never saw it."""
    engine, other = (SingleEngine(make(dtype), OptimizerConfig(lr=1e-2), "cpu") for _ in range(2))
    train(engine, 1.0)
    train(other, 1.0)
    engine.backward(loss_of(engine.model), last=False)
    engine.backward(loss_of(engine.model, bad), last=True)
    assert engine.step(1.0).skipped
    train(engine, 1.0)
    train(other, 1.0)
    assert all(torch.equal(value, other.model.state_dict()[name]) for name, value in engine.model.state_dict().items())


def test_small_steps_add_up_in_bfloat16() -> None:
    """Each is below the resolution of the weights, so training the weights themselves would leave them as they are."""
    engine = SingleEngine(make(torch.bfloat16), OptimizerConfig(lr=2e-4), "cpu")
    reference = SingleEngine(make(torch.bfloat16).float(), OptimizerConfig(lr=2e-4), "cpu")
    before = weights(engine.model)["model.norm.weight"]
    train(engine, *[1.0] * 40)
    train(reference, *[1.0] * 40)
    moved = (engine.model.state_dict()["model.norm.weight"] - before).float()
    expected = reference.model.state_dict()["model.norm.weight"] - before.float()
    assert moved.any()
    assert float((moved - expected).abs().max()) <= 2**-8, "half a bfloat16 step at 1"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_saved_state_goes_on_bit_for_bit(tmp_path: Path, dtype: torch.dtype, kind: str) -> None:
    config = OptimizerConfig(type=kind, lr=1e-2, weight_decay=0.1)
    engine = SingleEngine(make(dtype), config, "cpu")
    train(engine, 1.0, 0.5)
    engine.save_state(tmp_path)
    other_model = copy.deepcopy(make(dtype))
    with torch.no_grad():
        for value in other_model.parameters():
            value.zero_()
    other = SingleEngine(other_model, config, "cpu")
    other.load_state(tmp_path)
    train(engine, 0.5, 0.25)
    train(other, 0.5, 0.25)
    assert all(torch.equal(value, other.model.state_dict()[name]) for name, value in engine.model.state_dict().items())
    assert other.model.lm_head.weight is other.model.model.embed_tokens.weight


def test_state_of_another_optimiser_is_refused(tmp_path: Path) -> None:
    SingleEngine(make(), OptimizerConfig(type="adamw"), "cpu").save_state(tmp_path)
    with pytest.raises(ConfigError, match="optimizer muon; expected engine single, optimizer adamw"):
        SingleEngine(make(), OptimizerConfig(type="muon"), "cpu").load_state(tmp_path)


def test_one_process_engine_refuses_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"resources\.processes"):
        build({"engine": "single"}, "cpu", make(), OptimizerConfig())


def test_muon_is_refused_across_processes() -> None:
    with pytest.raises(ConfigError, match="got muon; expected adamw"):
        build({"engine": "deepspeed", "zero_stage": 2}, "cpu", make(), OptimizerConfig(type="muon"))

"""The export stage on real model folders. Oracle: plain transformers, the student's files, hand-made comparisons."""

from __future__ import annotations

import json

import pytest
import torch
from test_gates import DOMAINS, EFFORTS, comparison
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages.core.context import EVENTS
from stages.core.errors import ConfigError, DataError, StageFailed
from stages.export.config import PromoteConfig, PromoteJob
from stages.export.proof import prove_knob
from stages.export.stage import run
from stages.tasks.config import EffortMessage, PromptConfig
from stages.tasks.prompts import Renderer
from stages.tasks.template import with_effort
from stages.train.model import load_tokenizer

CAPS = {"general": 40, "code": 50}


def job(*, form="option", default=None, caps=None) -> PromoteJob:
    return PromoteJob(
        promote=PromoteConfig(model_name="nine"),
        domains=DOMAINS,
        efforts=EFFORTS,
        caps=caps or CAPS,
        prompt=PromptConfig(efforts=EFFORTS, message=EffortMessage(form=form, default=default)),
    )


@pytest.fixture
def export(tmp_path, make_context, make_model_folder):
    """Runs the stage on a fresh student and these numbers; returns (context, summary, student folder)."""

    def exported(promote: PromoteJob, numbers: dict | None = None, **shape):
        trained = PromptConfig(efforts=EFFORTS, message=EffortMessage(form=promote.prompt.message.form))
        student = make_model_folder("student", prompt=trained, **shape)
        (student / "manifest.json").write_text("{}")
        summary = tmp_path / "summary"
        summary.mkdir()
        (summary / "comparison.json").write_text(json.dumps(numbers or comparison()))
        context = make_context({"model": student, "summary": summary})
        return context, run(promote, context), student

    return exported


def test_plain_transformers_serves_what_was_exported(export):
    context, _, student = export(job())
    folder = context.out / "model"
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    source = AutoModelForCausalLM.from_pretrained(student)
    for name, tensor in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id]
    assert not (folder / "manifest.json").exists()
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "a b"}], add_generation_prompt=True, reasoning_effort="low", return_tensors="pt"
    )
    assert model.generate(**ids, max_new_tokens=3).shape[1] <= ids["input_ids"].shape[1] + 3


@pytest.mark.parametrize("form", ["option", "mode_token"])
def test_the_exported_template_renders_what_training_rendered(export, form):
    context, _, student = export(job(form=form))
    tokenizer = AutoTokenizer.from_pretrained(context.out / "model")
    renderer = Renderer(load_tokenizer(student), PromptConfig(efforts=EFFORTS, message=EffortMessage(form=form)))
    message = [{"role": "user", "content": "a b c"}]
    for effort in (*EFFORTS, None):
        text = tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True, reasoning_effort=effort
        )
        assert tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) == renderer.prompt_ids("a b c", effort)


def test_the_serving_default_is_that_efforts_prompt(export):
    context, _, _ = export(job(default="high"))
    tokenizer = AutoTokenizer.from_pretrained(context.out / "model")
    message = [{"role": "user", "content": "a"}]
    assert tokenizer.apply_chat_template(message, tokenize=False) == tokenizer.apply_chat_template(
        message, tokenize=False, reasoning_effort="high"
    )


def test_a_good_student_passes(export):
    context, summary, _ = export(job())
    gates = json.loads((context.out / "gates.json").read_text())
    assert summary == {"passed": True, "failed": [], "gates": len(gates["gates"])}
    assert gates["passed"]
    assert not (context.run_dir / EVENTS).exists()


def test_failed_gates_are_named_everywhere(export):
    numbers = comparison()
    numbers["recovery"]["code.low"]["token_ratio"]["value"] = 1.4
    context, summary, _ = export(job(), numbers)
    assert summary["failed"] == ["token_ratio.code.low"]
    gates = json.loads((context.out / "gates.json").read_text())
    assert not gates["passed"]
    (bad,) = [gate for gate in gates["gates"] if not gate["passed"]]
    assert (bad["name"], bad["value"], bad["limit"]) == ("token_ratio.code.low", 1.4, [0.8, 1.25])
    assert "token_ratio.code.low" in (context.run_dir / EVENTS).read_text()
    assert "- token_ratio.code.low: 1.400" in (context.out / "model" / "README.md").read_text()


def test_the_card_states_efforts_form_caps_and_operating_points(export):
    """code.max: .97 correct at 44 tokens in all = 22045 correct answers per million tokens."""
    context, _, _ = export(job(default="high"))
    card = (context.out / "model" / "README.md").read_text()
    assert card.startswith("# nine\n")
    for part in ("low, high, max", "form `option`", "general 40, code 50", "`high`", "All promotion gates hold."):
        assert part in card
    assert "| code | max | 0.970 (0.940 to 1.000) | 40.0 | 40.0 | 40.0 | 2.0 | 0.000 | 22045 |" in card


def test_a_context_below_the_cap_is_refused(export):
    """11 prompt tokens and a cap of 54 need 65."""
    with pytest.raises(
        ConfigError, match=r"domains\.code\.cap_tokens: got a context of 64 tokens; expected at least 65"
    ):
        export(job(caps={"general": 40, "code": 54}))


def test_a_student_without_weights_is_refused(export, make_model_folder, tmp_path, make_context):
    student = make_model_folder("empty")
    (student / "model.safetensors").unlink()
    (tmp_path / "comparison.json").write_text(json.dumps(comparison()))
    with pytest.raises(DataError, match="causal language model"):
        run(job(), make_context({"model": student, "summary": tmp_path}))


def test_a_student_without_generation_config_is_refused(make_model_folder, tmp_path, make_context):
    student = make_model_folder("bare")
    (student / "generation_config.json").unlink()
    (tmp_path / "comparison.json").write_text(json.dumps(comparison()))
    with pytest.raises(DataError, match=r"no generation_config\.json"):
        run(job(), make_context({"model": student, "summary": tmp_path}))


PROMPT = PromptConfig(efforts=EFFORTS)
USER_ONLY = "{% for message in messages if message.role == 'user' %}{{ message.content }}{% endfor %} <think>"
"""A base template without a place for the effort message."""


def proof_of(folder, exported_template: str, trained_template: str) -> None:
    exported, trained = load_tokenizer(folder), load_tokenizer(folder)
    exported.chat_template, trained.chat_template = exported_template, trained_template
    prove_knob(exported, trained, PROMPT)


def test_a_template_that_drops_the_effort_is_refused(make_model_folder):
    template = with_effort(USER_ONLY, PROMPT)
    with pytest.raises(StageFailed, match="effort 'high': got the same tokens as 'low'"):
        proof_of(make_model_folder("student"), template, template)


def test_a_template_that_differs_from_training_is_refused(make_model_folder):
    """A word more in the exported template."""
    folder = make_model_folder("student")
    trained = load_tokenizer(folder).chat_template
    with pytest.raises(StageFailed, match=r"effort 'low': got token ids .* as in training"):
        proof_of(folder, trained.replace("<user> ", "<user> a "), trained)


def test_a_template_that_takes_an_unknown_effort_is_refused(make_model_folder):
    folder = make_model_folder("student")
    trained = load_tokenizer(folder).chat_template
    lax = with_effort(trained, PromptConfig(efforts=(*EFFORTS, "lowhighmax-unknown")))
    with pytest.raises(StageFailed, match="a prompt for the unknown effort 'lowhighmax-unknown'"):
        proof_of(folder, lax, trained)


def test_the_proof_counts_prompt_tokens(make_model_folder):
    """<option> Reasoning effort: E <end> <user> low high max <assistant> <think>: 11 words."""
    tokenizer = load_tokenizer(make_model_folder("student"))
    assert prove_knob(tokenizer, tokenizer, PROMPT) == dict.fromkeys(EFFORTS, 11)

"""Oracles: hand-written renderings; equality between renderer, saved folder and plain transformers."""

from pathlib import Path

import jinja2
import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config

from stages.core.errors import ConfigError, DataError
from stages.core.records import MODEL, TOOL, Segment
from stages.tasks.config import EffortMessage, PromptConfig, ThinkingTags
from stages.tasks.prompts import Renderer, set_template
from stages.tasks.template import with_effort
from stages.tasks.tokenizer import EFFORT_WORDS, build_word_tokenizer

EFFORTS = ("low", "high", "max")
PROMPT = PromptConfig(efforts=EFFORTS)
MODE = PromptConfig(efforts=EFFORTS, message=EffortMessage(form="mode_token"))
TEXTS = [
    "general 3 a +4 b -2 ?",
    "steps 3 a +4 = 0 b -2 = 8 </think> 8",
    "a <call> 3 +4 </call>",
    "<obs> 0 </obs>",
    "quick 3 a 4 </think> 4",
]
PLAIN = "<user> general 3 a +4 b -2 ? <assistant> <think>"


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return build_word_tokenizer(TEXTS, PROMPT)


@pytest.fixture
def renderer(tokenizer: PreTrainedTokenizerFast) -> Renderer:
    return Renderer(tokenizer, PROMPT)


def ids_of(renderer: Renderer, text: str) -> np.ndarray:
    return np.asarray(renderer.observation_ids(text), dtype=np.int64)


def answer_of(renderer: Renderer, text: str, tool_words: int = 0) -> str:
    """The answer of a response whose first ``tool_words`` words a tool wrote."""
    ids = ids_of(renderer, text)
    roles = np.full(len(ids), MODEL)
    roles[:tool_words] = TOOL
    return renderer.answer_text(ids, roles)


def test_vocabulary_depends_on_words_not_on_their_order(tokenizer: PreTrainedTokenizerFast) -> None:
    again = build_word_tokenizer(reversed(TEXTS), PROMPT)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert set(EFFORT_WORDS) <= set(tokenizer.get_vocab())
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]


def test_extra_words_and_efforts_enter_the_vocabulary() -> None:
    tokenizer = build_word_tokenizer([], PromptConfig(efforts=("turbo",)), extra_words=["zebra"])
    assert {"turbo", "zebra", "error"} <= set(tokenizer.get_vocab())


@pytest.mark.parametrize("text", TEXTS)
def test_words_round_trip(renderer: Renderer, text: str) -> None:
    ids = renderer.observation_ids(text)
    assert len(ids) == len(text.split())
    assert renderer.text(ids) == text


def test_prompts_by_effort(renderer: Renderer) -> None:
    prompts = {effort: renderer.text(renderer.prompt_ids(TEXTS[0], effort)) for effort in (None, *EFFORTS)}
    assert prompts == {
        None: PLAIN,
        "low": f"<option> Reasoning effort: low <end> {PLAIN}",
        "high": f"<option> Reasoning effort: high <end> {PLAIN}",
        "max": f"<option> Reasoning effort: max <end> {PLAIN}",
    }


def test_mode_token(tokenizer: PreTrainedTokenizerFast) -> None:
    renderer = Renderer(tokenizer, MODE)
    assert renderer.text(renderer.prompt_ids(TEXTS[0], "low")) == f"low {PLAIN}"
    assert renderer.text(renderer.prompt_ids(TEXTS[0], None)) == PLAIN


@pytest.mark.parametrize("form", ["option", "mode_token"])
def test_default_effort(tokenizer: PreTrainedTokenizerFast, form: str) -> None:
    message = EffortMessage.model_validate({"form": form, "default": "high"})
    renderer = Renderer(tokenizer, PromptConfig(efforts=EFFORTS, message=message))
    assert renderer.prompt_ids(TEXTS[0], None) == renderer.prompt_ids(TEXTS[0], "high")
    assert renderer.prompt_ids(TEXTS[0], "low") != renderer.prompt_ids(TEXTS[0], "high")


@pytest.mark.parametrize("effort", ["medium", "HIGH", ""])
def test_unknown_effort(renderer: Renderer, effort: str) -> None:
    with pytest.raises(ConfigError, match=f"reasoning_effort: got '{effort}'; expected one of low, high, max"):
        renderer.prompt_ids(TEXTS[0], effort)


@pytest.mark.parametrize("effort", ["medium", "HIGH", "", 3])
def test_the_saved_template_refuses_an_unknown_effort(tokenizer: PreTrainedTokenizerFast, effort: object) -> None:
    set_template(tokenizer, PROMPT)
    with pytest.raises(jinja2.TemplateError, match="expected one of low, high, max"):
        tokenizer.apply_chat_template([{"role": "user", "content": "3"}], reasoning_effort=effort)


def test_save_and_load_with_plain_transformers(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    renderer = Renderer(tokenizer, PROMPT)
    expected = {effort: renderer.prompt_ids(TEXTS[0], effort) for effort in (None, *EFFORTS)}
    set_template(tokenizer, PROMPT)
    tokenizer.save_pretrained(tmp_path)
    Qwen3Config().save_pretrained(tmp_path)  # its own tokenizer class must not take over
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": TEXTS[0]}]
    for effort, ids in expected.items():
        kwargs = {} if effort is None else {"reasoning_effort": effort}
        rendered = loaded.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **kwargs)
        assert tuple(rendered) == ids
        assert Renderer(loaded, PROMPT).prompt_ids(TEXTS[0], effort) == ids
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert (loaded.eos_token, loaded.pad_token, loaded.unk_token) == ("<eos>", "<pad>", "<unk>")
    assert loaded.decode(expected["low"]) == f"<option> Reasoning effort: low <end> {PLAIN}"


def test_base_template_of_a_conversation(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [
        {"role": "user", "content": "3"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "8"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<user> 3 <assistant> 4 <eos> <user> 8 <assistant> <think>"
    assert tokenizer.apply_chat_template(messages[:1], tokenize=False) == "<user> 3"


def test_a_second_block_replaces_the_first() -> None:
    base = "{{ messages }}"
    once = with_effort(base, PROMPT)
    assert with_effort(with_effort(base, MODE), PROMPT) == once
    assert with_effort(once, PROMPT) == once
    assert once.endswith(base)


def test_an_own_system_message_comes_after_the_option(tokenizer: PreTrainedTokenizerFast) -> None:
    set_template(tokenizer, PROMPT)
    messages = [{"role": "system", "content": "general"}, {"role": "user", "content": "3"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, reasoning_effort="max")
    assert text == "<option> Reasoning effort: max <end> <option> general <end> <user> 3"


def test_one_bos_where_the_template_has_it(tokenizer: PreTrainedTokenizerFast) -> None:
    """Oracle: the rule of one BOS; the tokenizer here adds one by itself to every text."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    bos = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    assert tokenizer("3").input_ids[0] == bos
    base = tokenizer.chat_template
    tokenizer.chat_template = "{{ bos_token ~ ' ' }}" + base
    for effort in (None, "low"):
        ids = Renderer(tokenizer, PROMPT).prompt_ids("3", effort)
        assert ids[0] == bos
        assert ids.count(bos) == 1
    with pytest.raises(ConfigError, match=r"message\.form: got mode_token"):
        Renderer(tokenizer, MODE)
    tokenizer.chat_template = base
    assert bos not in Renderer(tokenizer, PROMPT).prompt_ids("3", "low")


def test_unknown_word(renderer: Renderer) -> None:
    with pytest.raises(DataError, match="words that the tokenizer does not know: zebra"):
        renderer.prompt_ids("general zebra ?", "low")
    with pytest.raises(DataError, match="zebra"):
        renderer.response_ids([Segment("assistant", "zebra </think> 8")])


def test_response_ids(renderer: Renderer) -> None:
    segments = [
        Segment("assistant", "a <call> 3 +4 </call>"),
        Segment("tool", "<obs> 0 </obs>"),
        Segment("assistant", "</think> 0"),
    ]
    ids, roles = renderer.response_ids(segments)
    assert renderer.text(ids) == "a <call> 3 +4 </call> <obs> 0 </obs> </think> 0 <eos>"
    assert roles.tolist() == [MODEL] * 5 + [TOOL] * 3 + [MODEL] * 3
    assert renderer.answer_text(ids, roles) == "0"


def test_special_ids(renderer: Renderer, tokenizer: PreTrainedTokenizerFast) -> None:
    vocabulary = tokenizer.get_vocab()
    assert renderer.eos_ids == {vocabulary["<eos>"]}
    assert renderer.turn_end_ids == {vocabulary["</call>"]}
    assert renderer.think_open_id == vocabulary["<think>"]
    assert renderer.think_close_id == vocabulary["</think>"]
    assert renderer.opened_by_prompt


@pytest.mark.parametrize(
    ("response", "tool_words", "answer"),
    [
        ("steps 3 </think> 8 <eos>", 0, "8"),
        ("steps 3 </think> 3 +4 <eos> <pad>", 0, "3 +4"),
        ("steps 3 8", 0, ""),
        ("</think> <eos>", 0, ""),
        ("3 </think> 4 </think> 8", 0, "4 </think> 8"),
        ("3 </think> <think> 4 </think> 8", 0, "<think> 4 </think> 8"),
        ("</think> 3 4 </think> 8", 2, "8"),  # a tool closes nothing and answers nothing
    ],
)
def test_answer_text(renderer: Renderer, response: str, tool_words: int, answer: str) -> None:
    if tool_words:
        # The closing tag and the word after it are the tool's.
        assert answer_of(renderer, response, tool_words) == answer
    else:
        assert answer_of(renderer, response) == answer


def test_a_template_that_opens_no_thinking(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.chat_template = tokenizer.chat_template.replace("<assistant> <think>", "<assistant>")
    renderer = Renderer(tokenizer, PROMPT)
    assert not renderer.opened_by_prompt
    assert answer_of(renderer, "8 <eos>") == "8"
    assert answer_of(renderer, "<think> 3 8") == ""
    assert answer_of(renderer, "<think> 3 </think> 8 <eos>") == "8"


@pytest.mark.parametrize("prompt", [PROMPT, MODE], ids=["option", "mode_token"])
def test_effort_ids_are_the_words_that_differ(tokenizer: PreTrainedTokenizerFast, prompt: PromptConfig) -> None:
    vocabulary = tokenizer.get_vocab()
    assert Renderer(tokenizer, prompt).effort_ids() == {effort: (vocabulary[effort],) for effort in EFFORTS}


def test_unusable_tokenizers(tokenizer: PreTrainedTokenizerFast) -> None:
    other_tags = PromptConfig(tags=ThinkingTags(open="<think>", close="</zebra>"))
    with pytest.raises(ConfigError, match="tags: </zebra>"):
        Renderer(tokenizer, other_tags)
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="chat template: got none"):
        Renderer(tokenizer, PROMPT)

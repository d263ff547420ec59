"""A file says what begins and ends texts, and some ends are known by their text alone."""

from collections.abc import Mapping
from typing import Any

import pytest

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import (
    GGUFTokenizer,
    read_gguf_tokenizer,
)
from tests.engine.loading.gguf.tokenizing import made

N_TRAINED = len(made.byte_level("gpt-2")["tokenizer.ggml.tokens"])
BOS, EOS, SEP = "<s>", "<end>", "<sep>"
FRAME = {BOS: made.CONTROL, EOS: made.CONTROL, SEP: made.CONTROL}
FRAME_IDS = {
    "bos_token_id": N_TRAINED,
    "eos_token_id": N_TRAINED + 1,
    "seperator_token_id": N_TRAINED + 2,
}


def framed(pre: str, **fields: Any) -> GGUFTokenizer:
    """fields: None for one that the file leaves out."""
    metadata = made.byte_level(pre, FRAME, **(FRAME_IDS | fields))
    return read_gguf_tokenizer({key: value for key, value in metadata.items() if value is not None})


def around(read: GGUFTokenizer, first: str, second: str | None = None) -> str:
    return " ".join(read.tokenizer.encode(first, second).tokens)


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("adds_eos", [True, False])
@pytest.mark.parametrize("adds_sep", [True, False])
def test_a_text_begins_and_ends_as_the_file_says(
    adds_bos: bool, adds_eos: bool, adds_sep: bool
) -> None:
    adds = {"add_bos_token": adds_bos, "add_eos_token": adds_eos, "add_sep_token": adds_sep}
    read = framed("llama-bpe", **adds)
    bos, eos, sep = BOS * adds_bos, EOS * adds_eos, SEP * adds_sep
    assert around(read, "a").split() == f"{bos} a {eos}".split()
    assert around(read, "a", "b").split() == f"{bos} a {eos} {sep} b {eos}".split()
    assert read.tokenizer.encode("a", add_special_tokens=False).tokens == ["a"]
    assert set(read.tokenizer.encode("a", "b").type_ids) == {0}


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        *(("llama-bpe", "<s> a"), ("tekken", "<s> a"), ("chameleon", "<s> a"), ("lfm2", "<s> a")),
        *(("qwen2", "a"), ("gpt-2", "a"), ("gpt-4o", "a"), ("deepseek-v3", "a"), ("glm4", "a")),
    ],
)
def test_the_rule_says_whether_texts_begin_with_bos_where_the_file_does_not(
    pre: str, expected: str
) -> None:
    assert around(framed(pre, add_bos_token=None), "a") == expected


def test_the_rule_says_whether_sep_parts_two_texts_where_the_file_does_not() -> None:
    assert around(framed("roberta-bpe", add_sep_token=None), "a", "b") == "a <sep> b"
    assert around(framed("gpt-2", add_sep_token=None), "a", "b") == "a b"


@pytest.mark.parametrize("name", ["bos", "eos", "sep"])
def test_a_text_can_have_no_token_around_it_that_the_file_does_not_name(name: str) -> None:
    key = "seperator_token_id" if name == "sep" else f"{name}_token_id"
    with pytest.raises(GGUFError, match=rf"key 'tokenizer\.ggml\.{key}': it is missing"):
        framed("gpt-2", **{f"add_{name}_token": True, key: None})


def test_the_texts_of_special_tokens_have_the_names_that_templates_use() -> None:
    read = framed("gpt-2", padding_token_id=0, unknown_token_id=1)
    assert read.special_tokens == (
        ("bos_token", BOS),
        ("eos_token", EOS),
        ("sep_token", SEP),
        ("unk_token", '"'),
        ("pad_token", "!"),
    )


def ends(special: Mapping[str, int], **fields: Any) -> set[str]:
    read = read_gguf_tokenizer(made.byte_level("gpt-2", special, **fields))
    return {read.tokenizer.id_to_token(at) or "" for at in read.end_ids}


@pytest.mark.parametrize(
    "text",
    [
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
        *("<|return|>", "<|call|>", "<end_of_turn>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
        *("<end_of_utterance>", "<turn|>", "<|flush|>", "<|calls|>", "<|tool_response>", "[e~["),
        *("<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<|repo_name|>"),
        *("<|file_sep|>", "[PAD]", "</s>"),
    ],
)
def test_an_end_is_known_by_its_text(text: str) -> None:
    found = ends({"<other>": made.CONTROL, text: made.CONTROL})
    assert found == {text}


def test_an_end_that_no_type_marks_is_a_control_token_all_the_same() -> None:
    metadata = made.byte_level("gpt-2", {"<|im_end|>": made.NORMAL, "<b>": made.USER_DEFINED})
    read = read_gguf_tokenizer(metadata)
    assert read.end_ids == {N_TRAINED}
    assert read.tokenizer.encode("<b>a<|im_end|>").tokens == ["<b>", "a", "<|im_end|>"]
    assert read.tokenizer.decode([N_TRAINED + 1, N_TRAINED]) == "<b>"


@pytest.mark.parametrize("name", ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"])
def test_an_end_is_known_by_its_key(name: str) -> None:
    fields = {f"{name}_token_id": N_TRAINED + 1}
    assert ends({"<a>": made.CONTROL, "<b>": made.CONTROL}, **fields) == {"<b>"}


def test_what_the_file_names_for_code_stands_for_the_usual_texts() -> None:
    special = {"<|fim_pad|>": made.CONTROL, "<a>": made.CONTROL}
    assert ends(special, fim_pad_token_id=N_TRAINED + 1) == {"<a>"}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("<|end|> <|return|> <|call|>", "<|return|> <|call|>"),  # gpt-oss
        ("<|end|> <|calls|> <|flush|>", "<|calls|> <|flush|>"),  # Solar Open
        ("<|end|> <|return|>", "<|end|> <|return|>"),
        ("<|end|> <|endoftext|>", "<|end|> <|endoftext|>"),  # Phi 3
        ("<|tool_response> </s> <turn|>", "<|tool_response> <turn|>"),  # Gemma 4
    ],
)
def test_an_end_of_a_part_of_an_answer_is_none_of_the_answer(texts: str, expected: str) -> None:
    assert ends(dict.fromkeys(texts.split(), made.CONTROL)) == set(expected.split())


def test_html_is_no_end() -> None:
    assert ends({"</s>": made.USER_DEFINED, "<|im_end|>": made.CONTROL}) == {"<|im_end|>"}


def test_types_say_which_tokens_are_found_in_texts() -> None:
    special = {
        "<control>": made.CONTROL,
        "<defined>": made.USER_DEFINED,
        "<unknown>": made.UNKNOWN,
        "<unused>": made.UNUSED,
        "<normal>": made.NORMAL,
    }
    tokenizer = read_gguf_tokenizer(made.byte_level("gpt-2", special)).tokenizer
    found = {token for token in special if tokenizer.encode(f"a{token}").tokens == ["a", token]}
    assert found == {"<control>", "<defined>", "<unknown>"}
    ids = tokenizer.encode("".join(found), add_special_tokens=False).ids
    assert tokenizer.decode(ids) == "<defined>"
    tokenizer.encode_special_tokens = True  # a text may not spell control tokens
    assert len(tokenizer.encode("<defined>").ids) == 1
    assert len(tokenizer.encode("<control>").ids) > 1


def test_templates_are_read_by_their_names() -> None:
    metadata = made.byte_level("gpt-2")
    assert read_gguf_tokenizer(metadata).chat_templates == {}
    metadata["tokenizer.chat_template"] = "{{ one }}"
    metadata["tokenizer.chat_template.tool_use"] = "{{ two }}"
    metadata["tokenizer.chat_templates"] = ["tool_use"]
    expected = {"default": "{{ one }}", "tool_use": "{{ two }}"}
    assert read_gguf_tokenizer(metadata).chat_templates == expected


@pytest.mark.parametrize("key", ["tokenizer.chat_template", "tokenizer.chat_template.rag"])
def test_a_template_that_is_no_text_is_refused(key: str) -> None:
    with pytest.raises(GGUFError, match=f"key '{key}': it is no text"):
        read_gguf_tokenizer(made.byte_level("gpt-2") | {key: 1})

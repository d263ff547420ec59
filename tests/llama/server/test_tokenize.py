"""Text to ids and back over HTTP, chat templates, and prompts to be filled in the middle."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from deployments.contract.model_card import ModelCard
from deployments.ingress.http.schema import MAX_TOKENIZED_CHARACTERS
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import ask, refusal, send
from tests.text.cards import byte_level, card

TOKENIZER = TextTokenizer(card())
START = TOKENIZER.special_id("<|im_start|>")
FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def with_tokens(*tokens: str, bos: bool = False) -> ModelCard:
    """The card of a model whose vocabulary has these special tokens too."""
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    if bos:
        tokenizer.post_processor = TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", START)]
        )
    return replace(card(), tokenizer_json=tokenizer.to_str(), vocab_size=420)


def posted(path: str, on: ModelCard | None = None, **body: object) -> Any:
    cluster = CountingCluster(says("x"), on or card())
    response = asyncio.run(send(cluster, "POST", path, json=body))
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("text", ["Hello world", "", "gr\u00fc\u00df\u65e5\u672c\u8a9e \U0001f642"])
def test_text_comes_back(text: str) -> None:
    tokens = posted("/tokenize", content=text)["tokens"]
    assert tokens == TOKENIZER.encode(text, False)
    assert posted("/detokenize", tokens=tokens) == {"content": text, "prompt": text}


def test_special_tokens_are_parsed_by_default() -> None:
    text = "a<|im_start|>"
    assert posted("/tokenize", content=text)["tokens"][-1] == START
    literal = posted("/tokenize", content=text, parse_special=False)["tokens"]
    assert START not in literal
    assert posted("/detokenize", tokens=literal)["content"] == text
    assert posted("/detokenize", tokens=[START])["content"] == "<|im_start|>"


def test_special_tokens_frame_a_text_only_if_asked() -> None:
    on = with_tokens(bos=True)
    plain = posted("/tokenize", on, content="Hello")["tokens"]
    assert posted("/tokenize", on, content="Hello", add_special=True)["tokens"] == [START, *plain]
    mixed = posted("/tokenize", on, content=["Hello", 5, "Hello"], add_special=True)["tokens"]
    assert mixed == [START, *plain, 5, *plain]
    assert posted("/tokenize", on, content=[5, "Hello"], add_special=True)["tokens"] == [5, *plain]


def test_a_piece_that_is_no_text_is_bytes() -> None:
    pieces = [
        token["piece"]
        for token in posted("/tokenize", content="\U0001f9e9", with_pieces=True)["tokens"]
    ]
    raw = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
    assert raw.decode() == "\U0001f9e9"
    assert any(isinstance(piece, list) for piece in pieces)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a" * (MAX_TOKENIZED_CHARACTERS + 1)}, "content"),
        ("/tokenize", {"content": ["a" * MAX_TOKENIZED_CHARACTERS, 5]}, "content"),
        ("/tokenize", {"content": [""] * 4097}, "content"),
        ("/detokenize", {}, "tokens"),
        ("/apply-template", {}, "messages"),
        ("/infill", {"input_prefix": "a"}, "input_suffix"),
        ("/infill", {"input_prefix": "a", "input_suffix": 5}, "input_suffix"),
        (
            "/infill",
            {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"name": "x"}]},
            "input_extra[0].text",
        ),
    ],
)
def test_wrong_fields_are_named(path: str, body: dict[str, object], param: str) -> None:
    assert refusal(ask(says("x"), path, body), 400)["param"] == param


def test_a_conversation_is_rendered_as_the_model_would_see_it() -> None:
    body = posted("/apply-template", messages=[{"role": "user", "content": "hi"}])
    assert body == {"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}


def test_a_last_message_of_the_assistant_is_what_the_answer_begins_with() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well,"}]
    begun = posted("/apply-template", messages=messages)["prompt"]
    assert begun.endswith("<|im_start|>assistant\nWell,")
    ended = posted("/apply-template", messages=messages, add_generation_prompt=True)["prompt"]
    assert ended.endswith("Well,<|im_end|>\n<|im_start|>assistant\n")
    again = posted("/apply-template", messages=messages, continue_final_message=True)["prompt"]
    assert again == begun


def infilled(on: ModelCard, **body: object) -> Any:
    return posted("/infill", on, input_prefix="def f(", input_suffix="return", **body)


def test_an_infill_prompt_has_the_models_marks() -> None:
    body = infilled(with_tokens(*FIM), prompt="x, ", n_predict=2)
    assert body["prompt"] == "<|fim_prefix|>def f(<|fim_suffix|>return<|fim_middle|>x, "
    assert list(infilled(with_tokens(*FIM), response_fields=["content"])) == ["content"]


def test_marks_end_the_middle_as_they_end_it_in_training() -> None:
    on = with_tokens(*FIM, "<|fim_pad|>", "<|file_sep|>")

    def ends(**fields: object) -> tuple[int, ...]:
        cluster = CountingCluster(says("x"), on)
        body = {"input_prefix": "a", "input_suffix": "b", **fields}
        asyncio.run(send(cluster, "POST", "/infill", json=body))
        return cluster.requests[0].stop_token_ids

    marks = {TextTokenizer(on).special_id(mark) for mark in (*FIM, "<|fim_pad|>", "<|file_sep|>")}
    assert set(ends()) == marks
    assert ends(ignore_eos=True) == ()


def test_other_files_come_before_the_middle() -> None:
    extra = [{"filename": "a.py", "text": "import os"}, {"text": "y"}]
    prompt = infilled(with_tokens(*FIM, "<|file_sep|>"), input_extra=extra)["prompt"]
    assert "<|file_sep|>a.py\nimport os" in prompt
    assert prompt.endswith("<|fim_prefix|>def f(<|fim_suffix|>return<|fim_middle|>")


def test_what_is_around_the_middle_is_cut_to_the_context() -> None:
    """Editors send all they have seen, on every key."""
    extra = [{"text": "import os\n" * 100}] * 5
    body = infilled(with_tokens(*FIM), input_extra=extra, n_predict=64)
    assert body["prompt"] == "<|fim_prefix|>def f(<|fim_suffix|>return<|fim_middle|>"
    long = {"input_prefix": "x = 1\n" * 999, "input_suffix": "y = 2\n" * 999, "n_predict": 64}
    cut = posted("/infill", with_tokens(*FIM), **long)
    assert cut["tokens_evaluated"] == 512 - 64 - 1


def test_a_model_without_marks_can_not_fill_in() -> None:
    body = {"input_prefix": "a", "input_suffix": "b"}
    assert "tiny" in refusal(ask(says("x"), "/infill", body), 501)["message"]


def test_what_editors_send_is_served() -> None:
    extra = [{"text": "x = 1", "filename": "a.py", "time": [1, 2]}]
    for samplers in (["top_k", "top_p", "infill"], "kpi"):
        body = infilled(with_tokens(*FIM), input_extra=extra, samplers=samplers)
        assert body["generation_settings"]["samplers"] == ["top_k", "top_p"]

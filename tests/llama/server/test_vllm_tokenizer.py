"""Clients of vLLM tokenize in its forms, and ask what the tokenizer is."""

import asyncio
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import ask, refusal, send
from tests.openai.chat.chatting import asked
from tests.text.cards import CHAT_TEMPLATE, byte_level, card, token_id

TOKENIZER = TextTokenizer(card())
START = token_id(byte_level(), "<|im_start|>")
MESSAGES: list[Any] = [{"role": "user", "content": "Hello w\u00f6rld"}]


def framing() -> CountingCluster:
    """Makes a cluster of a model whose tokenizer begins every text with a token."""
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", START)]
    )
    return CountingCluster(says("x"), card(tokenizer))


def posted(**body: object) -> Any:
    response = asyncio.run(send(framing(), "POST", "/tokenize", json=body))
    assert response.status_code == 200, response.text
    return response.json()


def test_a_prompt_is_tokenized_in_vllms_form() -> None:
    ids = TOKENIZER.encode("Hello world", False)
    assert posted(model="tiny", prompt="Hello world") == {
        "count": len(ids) + 1,
        "max_model_len": 512,
        "tokens": [START, *ids],
        "token_strs": None,
    }
    told = posted(prompt="Hello world", add_special_tokens=False, return_token_strs=True)
    assert told["tokens"] == ids
    assert told["token_strs"] == [byte_level().id_to_token(prompt_id) for prompt_id in ids]


def test_a_conversation_is_tokenized_as_its_chat_would_be() -> None:
    nulls = {"chat_template": None, "mm_processor_kwargs": None, "tools": None}
    told = posted(messages=MESSAGES, add_special_tokens=False, **nulls)
    [request] = asked({"messages": MESSAGES})
    assert told["tokens"] == list(request.prompt_ids)
    assert told["count"] == len(told["tokens"])
    open_ended = posted(messages=MESSAGES, add_generation_prompt=False)
    assert open_ended["count"] < told["count"]


def test_a_conversation_that_fills_the_context_has_its_ids() -> None:
    def of(digits: int) -> Any:  # each is a token
        return posted(messages=[{"role": "user", "content": "7" * digits}])

    told = of(512 - of(0)["count"])
    assert told["count"] == told["max_model_len"]
    assert told["tokens"].count(TOKENIZER.encode("7", False)[0]) == 512 - of(0)["count"]


def test_a_conversation_that_does_not_fit_is_tokenized_all_the_same() -> None:
    long = [{"role": "user", "content": "Hello world, how are you? " * 200}]
    told = posted(messages=long)
    assert told["count"] > told["max_model_len"]
    text = TOKENIZER.decode(told["tokens"], skip_special_tokens=False)
    assert text == f"<|im_start|>user\n{long[0]['content']}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x" * ((1 << 21) + 1)}, "prompt"),
        ({"prompt": "x", "with_pieces": True}, "with_pieces"),
        ({"prompt": "x", "add_special_tokens": 1}, "add_special_tokens"),
        ({"content": "x", "prompt": "x"}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": MESSAGES, "return_token_strs": 1}, "return_token_strs"),
        ({"messages": MESSAGES, "chat_template": "x"}, "chat_template"),
    ],
)
def test_what_is_wrong_in_it_is_named(fields: dict[str, Any], param: str) -> None:
    assert refusal(ask(says("x"), "/tokenize", fields), 400)["param"] == param


def test_the_tokenizer_is_described() -> None:
    response = asyncio.run(send(framing(), "GET", "/tokenizer_info", params={"model": "tiny"}))
    assert response.status_code == 200
    told = response.json()
    assert told["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (told["eos_token"], told["model_max_length"]) == ("<|im_end|>", 512)
    assert told["chat_template"] == CHAT_TEMPLATE
    fields = told["added_tokens_decoder"][str(START)]
    assert AddedToken(**fields) == byte_level().get_added_tokens_decoder()[START]
    unknown = asyncio.run(send(framing(), "GET", "/tokenizer_info", params={"model": "x"}))
    assert refusal(unknown, 404)["param"] == "model"

"""Legacy completions: every form of prompt, echo, and log-probabilities in the oldest shape."""

import asyncio
from typing import Any

import pytest
from openai.types import Completion
from pydantic import TypeAdapter

from deployments.text.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import COMPLETIONS, answer, chunks_of, post
from tests.text.cards import card

TOKENIZER = TextTokenizer(card())


def whole(script: Any, **fields: object) -> Any:
    response = answer(script, COMPLETIONS, fields)
    assert response.status_code == 200, response.text
    TypeAdapter(Completion).validate_json(response.text, strict=True)
    return response.json()


def streamed(script: Any, **fields: object) -> list[Any]:
    return chunks_of(answer(script, COMPLETIONS, {**fields, "stream": True}))


def folded(chunks: list[Any]) -> list[Any]:
    choices: dict[int, Any] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {**part, "text": "", "logprobs": None})
            choice["text"] += part["text"]
            choice["finish_reason"] = part["finish_reason"]
            if part["logprobs"] is not None:  # its finish chunk has none
                entries = choice["logprobs"] or {name: [] for name in part["logprobs"]}
                choice["logprobs"] = {n: entries[n] + part["logprobs"][n] for n in entries}
    return [choices[index] for index in sorted(choices)]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "Hello"},
        {"prompt": "Hello", "n": 2, "echo": True},
        {"prompt": ["Hello", "stop"], "n": 2, "logprobs": 2},
        {"prompt": [66, 67], "stop": "or", "logprobs": 0},
        {"prompt": [[66, 67], [68]], "max_tokens": 2, "echo": True},
    ],
)
def test_a_stream_folds_to_the_unary_answer(fields: dict[str, object]) -> None:
    script = says("Hello world", "stop \u65e5", "third", "x")
    body = whole(script, **fields)
    chunks = streamed(script, **fields, stream_options={"include_usage": True})
    assert folded(chunks) == body["choices"]
    assert chunks[-1]["usage"] == body["usage"]


def test_the_body_has_every_field() -> None:
    body = whole(says("Hi."), prompt="Hello")
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "Hi.", "logprobs": None, "finish_reason": "stop"}
    ]


def test_every_prompt_is_counted_and_answered_in_order() -> None:
    body = whole(says("a", "b", "c", "d"), prompt=[[1, 2, 3], [4, 5]], n=2)
    assert [choice["text"] for choice in body["choices"]] == ["a", "b", "c", "d"]
    assert body["usage"]["prompt_tokens"] == 5


def test_prompts_in_a_list_draw_as_if_alone() -> None:
    async def seeds() -> list[int]:
        engine = ScriptedEngine(says("x"))
        await post(engine, COMPLETIONS, {"prompt": ["a", "b"], "n": 2, "seed": 5})
        return [request.sampling.seed for request in engine.requests]

    assert asyncio.run(seeds()) == [5, 6, 5, 6]


def test_sixteen_tokens_by_default() -> None:
    assert whole(says("x" * 99), prompt="a")["usage"]["completion_tokens"] == 16


def test_logprobs_in_the_oldest_shape() -> None:
    logprobs = whole(says("ab"), prompt="x", logprobs=1)["choices"][0]["logprobs"]
    tokens = [TOKENIZER.decode([one]) for one in TOKENIZER.encode("ab", False)]
    assert logprobs["tokens"] == tokens
    assert logprobs["text_offset"] == [len("".join(tokens[:i])) for i in range(len(tokens))]
    assert logprobs["token_logprobs"] == [-0.5] * len(tokens)
    assert logprobs["top_logprobs"][0] == {tokens[0]: -0.5, "<|im_end|>": -9999.0}


def test_echo_gives_the_prompt_back() -> None:
    assert whole(says(" you"), prompt="Hey", echo=True)["choices"][0]["text"] == "Hey you"
    ids = TOKENIZER.encode("Hey", False)
    assert whole(says(" you"), prompt=ids, echo=True)["choices"][0]["text"] == "Hey you"

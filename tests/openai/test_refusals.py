"""Everything wrong in a request is a 4xx that names it, in OpenAI's envelope."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.contract.errors import ErrorKind, RequestError
from tests.ingress.engines import ScriptedEngine, fails, raises, says
from tests.openai.chat.chatting import refused
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, chunks_of, http, served
from tests.text.cards import card

USER = {"role": "user", "content": "x"}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x"}}


def part(value: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": [value]}]}


WRONG_CHAT: list[tuple[dict[str, object], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "foo": 1}]}, "messages[0].foo"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    (part({"type": "image_url", "image_url": {"url": "x"}}), "messages[0].content[0].image_url"),
    (
        part({"type": "image_url", "image_url": {"url": "x"}, "foo": 1}),
        "messages[0].content[0].foo",
    ),
    (part({"type": "input_audio", "input_audio": {}}), "messages[0].content[0].input_audio.data"),
    (
        {"messages": [{"role": "system", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "assistant", "content": "x", "annotations": [{"type": "poem"}]}]},
        "messages[0].annotations",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "extra_content": {}}]}]},
        "messages[0].tool_calls[0].extra_content",
    ),
    ({"tools": [{**TOOL, "cache_control": None}]}, "tools[0].cache_control"),
    ({"tools": [{**TOOL, "function": {"name": "f", "foo": 1}}]}, "tools[0].function.foo"),
    ({"response_format": {**FORMAT, "schema": {}}}, "response_format.schema"),
    (part({"type": "text"}), "messages[0].content[0].text"),
    (part({"type": "text", "text": 1}), "messages[0].content[0].text"),
    (part({"type": "poem", "text": "x"}), "messages[0].content[0].type"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.0}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": True}, "n"),
    ({"seed": 2**63}, "seed"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ["a"] * 33}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"stop_token_ids": [1] * 1025}, "stop_token_ids"),
    ({"metadata": {"m" * 65: "x"}}, f"metadata.{'m' * 65}"),
    ({"stop_token_ids": [10**6]}, "stop_token_ids"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"logit_bias": {str(token_id): 1 for token_id in range(4097)}}, "logit_bias"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"foo": 1}}, "stream_options.foo"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"model": 5}, "model"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"unknown_field": 1}, "unknown_field"),
    ({"echo": True}, "echo"),
    ({"functions": [{}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"messages": [USER, {"role": "function", "name": "f", "content": "x"}]}, "messages[1]"),
    (
        {"messages": [USER, {"role": "tool", "content": "x", "tool_call_id": "a"}]},
        "messages[1].tool_call_id",
    ),
    ({"bad_words": "x"}, "bad_words"),
    ({"bad_words": [""]}, "bad_words[0]"),
    ({"bad_words": ["x"] * 257}, "bad_words"),
    ({"priority": 2**31}, "priority"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"return_token_ids": 1}, "return_token_ids"),
    ({"chat_template_kwargs": {"a": 1}, "chat_template_args": {"a": 1}}, "chat_template_args"),
    ({"typical_p": 1.5}, "typical_p"),
    ({"samplers": "kq"}, "samplers"),
    ({"mirostat": 3}, "mirostat"),
    ({"dry_multiplier": 1.0, "dry_sequence_breakers": ["\u4e94\u5341"]}, "dry_sequence_breakers"),
    ({"repeat_penalty": 1.1, "repetition_penalty": 1.1}, "repeat_penalty"),
    ({"n_predict": 5, "max_tokens": 6}, "n_predict"),
    ({"sse_ping_interval": 0}, "sse_ping_interval"),
    ({"lora": [{"id": 0, "scale": 1.0}]}, "lora[0].id"),
    ({"thinking_budget_tokens": 5, "reasoning_budget_tokens": 5}, "reasoning_budget_tokens"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"verbosity": "lower"}, "verbosity"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"reasoning_format": "harmony"}, "reasoning_format"),
    ({"thinking": {"type": "adaptive"}}, "thinking.type"),
    ({"thinking": {"type": "enabled"}}, "thinking"),
    ({"thinking": {"type": "disabled"}, "reasoning_effort": "low"}, "thinking"),
    ({"thinking_token_budget": -1}, "thinking_token_budget"),
    ({"thinking_token_budget": 5}, "thinking_token_budget"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"prediction": {}}, "prediction.type"),
    ({"prediction": {"type": "content", "content": []}}, "prediction.content"),
    ({"response_fields": ["content"]}, "response_fields"),
    ({"speculative.n_max": "16"}, "speculative.n_max"),
    ({"typ_p": 1.5}, "typ_p"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"store": True}, "store"),
    ({"service_tier": "first"}, "service_tier"),
    ({"prompt_cache_retention": "1y"}, "prompt_cache_retention"),
    ({"prompt_cache_options": {"size": 1}}, "prompt_cache_options.size"),
    ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options.prewarm"),
]
WRONG_COMPLETIONS: list[tuple[dict[str, object], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt[0]"),
    ({"prompt": ["a", 3]}, "prompt[1]"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [10**6]}, "prompt"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": [1, 1, -1]}, "prompt[2]"),
    ({"prompt": ["a", 1]}, "prompt[1]"),
    ({"prompt": ["a"] * 1025}, "prompt"),
    ({"suffix": "x"}, "suffix"),
    ({"best_of": 2, "stream": True}, "best_of"),
    ({"logprobs": 6}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"messages": []}, "messages"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"best_of": 1, "n": 2}, "best_of"),
    ({"suffix": 5}, "suffix"),
    ({"suffix": "x", "echo": True}, "suffix"),
    ({"suffix": "x", "prompt": [1]}, "suffix"),
    ({"no_stop_trim": True, "include_stop_str_in_output": False}, "no_stop_trim"),
    ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
    ({"thinking_token_budget": 3}, "thinking_token_budget"),
    ({"tools": []}, "tools"),
    ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
]


def refusal(response: httpx.Response, status: int) -> Any:
    """The error of an answer, with all that every error must have."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    [(name, error)] = response.json().items()
    assert name == "error"
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "pydantic" not in error["message"]
    assert "http" not in error["message"]
    return error


async def ask(path: str, **request: Any) -> httpx.Response:
    async with http(served(ScriptedEngine(says("x")))) as client:
        return await client.post(path, **request)


@pytest.mark.parametrize(("body", "param"), WRONG_CHAT)
def test_a_wrong_chat_field_is_named(body: dict[str, object], param: str) -> None:
    response = asyncio.run(ask(CHAT, json={**HELLO, **body}))
    error = refusal(response, 400)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


@pytest.mark.parametrize(("body", "param"), WRONG_COMPLETIONS)
def test_a_wrong_completion_field_is_named(body: dict[str, object], param: str) -> None:
    response = asyncio.run(ask(COMPLETIONS, json={"prompt": "x", **body}))
    assert refusal(response, 400)["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b'{"messages": [}',
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": 1e999, "messages": [{"role": "user", "content": "x"}]}',
        b'{"messages": "\xff"}',
        b'{"user": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"user": "a\nb"}',
        b"[" * 100_000,
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b'{"seed": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    headers = {"content-type": "application/json"}
    refusal(asyncio.run(ask(CHAT, content=body, headers=headers)), 400)


def test_the_place_of_a_json_error_is_named() -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    error = refusal(asyncio.run(ask(CHAT, content=b'{\n "a": }', headers=headers)), 400)
    assert "line 2 column 7" in error["message"]


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-type": "text/plain"}, {"content-type": "application/json; charset=latin-1"}],
)
def test_other_content_types_are_415(headers: dict[str, str]) -> None:
    refusal(asyncio.run(ask(CHAT, content=b"{}", headers=headers)), 415)


def test_a_missing_field_is_required() -> None:
    error = refusal(asyncio.run(ask(CHAT, json={})), 400)
    assert error["message"] == "`messages` is required"


def test_ranges_are_said_in_plain_words() -> None:
    error = refusal(asyncio.run(ask(CHAT, json={**HELLO, "temperature": 3})), 400)
    assert error["message"] == "`temperature` must be less than or equal to 2, got 3"


def test_a_prompt_longer_than_the_context_names_both_numbers() -> None:
    error = refusal(asyncio.run(ask(COMPLETIONS, json={"prompt": [1] * 600})), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert "512" in error["message"]
    assert "600" in error["message"]


def test_an_unknown_model_is_404() -> None:
    error = refusal(asyncio.run(ask(CHAT, json={**HELLO, "model": "nope"})), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_unknown_paths_and_methods_answer_in_form() -> None:
    async def asks() -> list[httpx.Response]:
        async with http(served(ScriptedEngine(says("x")))) as client:
            return [
                await client.get("/v1/nothing"),
                await client.post("/v1/chat/completions//"),
                await client.get(CHAT),
                await client.delete("/v1/models"),
            ]

    missing, slash, get, delete = asyncio.run(asks())
    refusal(missing, 404)
    refusal(slash, 404)
    refusal(get, 405)
    refusal(delete, 405)
    assert get.headers["allow"] == "POST"
    assert "GET" in delete.headers["allow"]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("moderations", "moderation"),
        ("audio/speech", "audio output"),
        ("images/variations", "images"),
    ],
)
def test_what_no_model_here_can_do_is_said_so(path: str, what: str) -> None:
    error = refusal(asyncio.run(ask(f"/v1/{path}", json={"input": "x"})), 501)
    assert (error["code"], error["message"]) == (
        "not_supported",
        f"This server does not support {what}",
    )


@pytest.mark.parametrize(
    ("kind", "status", "retry"),
    [
        (ErrorKind.OVERLOADED, 429, "1"),
        (ErrorKind.UNAVAILABLE, 503, "5"),
        (ErrorKind.CONTEXT_LENGTH, 400, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_before_the_first_token_keeps_its_status(
    kind: ErrorKind, status: int, retry: str | None, stream: bool
) -> None:
    error = RequestError(kind, "because", "p")

    async def asks() -> httpx.Response:
        async with http(served(ScriptedEngine(fails(error)))) as client:
            return await client.post(CHAT, json={**HELLO, "stream": stream, "n": 2})

    response = asyncio.run(asks())
    assert refusal(response, status)["message"] == "because"
    assert response.headers.get("retry-after") == retry


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_inside_is_500_and_says_nothing_but_the_request_id(stream: bool) -> None:
    async def asks() -> httpx.Response:
        async with http(served(ScriptedEngine(raises(RuntimeError("secret"))))) as client:
            headers = {"x-request-id": "mine"}
            return await client.post(CHAT, json={**HELLO, "stream": stream}, headers=headers)

    response = asyncio.run(asks())
    error = refusal(response, 500)
    assert "secret" not in response.text
    assert "mine" in error["message"]
    assert response.headers["x-request-id"] == "mine"


def test_a_failure_after_the_headers_goes_into_the_stream() -> None:
    error = RequestError(ErrorKind.UNAVAILABLE, "gone")

    async def asks() -> httpx.Response:
        async with http(served(ScriptedEngine(fails(error, after="Hello")))) as client:
            return await client.post(CHAT, json={**HELLO, "stream": True})

    chunks = chunks_of(asyncio.run(asks()))
    assert chunks[-1] == {
        "error": {
            "message": "gone",
            "type": "server_error",
            "param": None,
            "code": "service_unavailable",
        }
    }
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1]) == "Hello"


def test_too_large_a_body_is_413_while_it_is_read() -> None:
    async def asks() -> tuple[httpx.Response, int]:
        sent = 0

        async def body() -> Any:
            nonlocal sent
            for _ in range(100):
                sent += 1
                yield b" " * (1 << 20)

        headers = {"content-type": "application/json"}
        return await ask(CHAT, content=body(), headers=headers), sent

    response, sent = asyncio.run(asks())
    refusal(response, 413)
    assert sent <= 34


def test_a_prompt_of_no_tokens_is_refused() -> None:
    silent = replace(card(), chat_template="{# nothing #}")
    error = refused(silent)
    assert (error["param"], "no tokens" in error["message"]) == ("messages", True)

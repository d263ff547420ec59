"""A request whose fields do not go together is told so, in OpenAI's envelope.

tests/malformed has fields that are wrong by themselves.
"""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.ingress.engines import ScriptedEngine, says
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.protocol import Protocol
from tests.malformed.cases import message_of
from tests.openai.serving import CHAT, HELLO, http, served
from tests.text.cards import card

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWER = {"role": "assistant", "tool_calls": [{**CALL, "extra_content": {}}]}
TOGETHER: list[tuple[Protocol, dict[str, object], str]] = [
    (CHATS, {"messages": [ANSWER]}, "messages[0].tool_calls[0].extra_content"),
    (CHATS, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    (CHATS, {"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    (CHATS, {"stream": True, "stream_options": {"foo": 1}}, "stream_options.foo"),
    (
        CHATS,
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    (CHATS, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (
        CHATS,
        {"chat_template_kwargs": {"a": 1}, "chat_template_args": {"a": 1}},
        "chat_template_args",
    ),
    (
        CHATS,
        {"dry_multiplier": 1.0, "dry_sequence_breakers": ["\u4e94\u5341"]},
        "dry_sequence_breakers",
    ),
    (CHATS, {"repeat_penalty": 1.1, "repetition_penalty": 1.1}, "repeat_penalty"),
    (CHATS, {"n_predict": 5, "max_tokens": 6}, "n_predict"),
    (
        CHATS,
        {"thinking_budget_tokens": 5, "reasoning_budget_tokens": 5},
        "reasoning_budget_tokens",
    ),
    (CHATS, {"thinking": {"type": "disabled"}, "reasoning_effort": "low"}, "thinking"),
    (CHATS, {"speculative.n_max": "16"}, "speculative.n_max"),
    (COMPLETIONS, {"best_of": 2, "stream": True}, "best_of"),
    (COMPLETIONS, {"best_of": 1, "n": 2}, "best_of"),
    (COMPLETIONS, {"suffix": "x", "echo": True}, "suffix"),
    (COMPLETIONS, {"suffix": "x", "prompt": [1]}, "suffix"),
    (COMPLETIONS, {"no_stop_trim": True, "include_stop_str_in_output": False}, "no_stop_trim"),
    (COMPLETIONS, {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
]


def refusal(response: httpx.Response, status: int) -> Any:
    """The error of an answer, with all that every error must have."""
    assert response.status_code == status, response.text
    assert message_of("openai", response)
    return response.json()["error"]


async def ask(path: str, **request: Any) -> httpx.Response:
    async with http(served(ScriptedEngine(says("x")))) as client:
        return await client.post(path, **request)


@pytest.mark.parametrize(("protocol", "fields", "param"), TOGETHER, ids=str)
def test_what_does_not_go_together_is_named(
    protocol: Protocol, fields: dict[str, object], param: str
) -> None:
    error = refusal(protocol.answer(says("x"), **fields), 400)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


def test_a_missing_field_is_required() -> None:
    error = refusal(asyncio.run(ask(CHAT, json={})), 400)
    assert error["message"] == "`messages` is required"


def test_ranges_are_said_in_plain_words() -> None:
    error = refusal(asyncio.run(ask(CHAT, json={**HELLO, "temperature": 3})), 400)
    assert error["message"] == "`temperature` must be less than or equal to 2, got 3"


def test_a_prompt_longer_than_the_context_names_both_numbers() -> None:
    error = COMPLETIONS.refused(prompt=[1] * 600)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert "512" in error["message"]
    assert "600" in error["message"]


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


async def test_too_large_a_body_is_413_while_it_is_read() -> None:
    sent = 0

    async def body() -> Any:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * (1 << 20)

    headers = {"content-type": "application/json"}
    response = await ask(CHAT, content=body(), headers=headers)
    refusal(response, 413)
    assert sent <= 34


def test_a_prompt_of_no_tokens_is_refused() -> None:
    error = CHATS.refused(replace(card(), chat_template="{# nothing #}"))
    assert (error["param"], "no tokens" in error["message"]) == ("messages", True)

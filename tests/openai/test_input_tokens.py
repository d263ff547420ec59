"""Counts of tokens equal the usage of a generation, and generate nothing."""

from typing import Any

import httpx
import pytest
from openai.types.responses import InputTokenCountResponse
from pydantic import TypeAdapter

from tests.ingress.engines import ScriptedEngine, says
from tests.openai.responses.responding import HELLO, RESPONSES, WEATHER, Ask, talk
from tests.text.cards import card

COUNT = TypeAdapter(InputTokenCountResponse)
CHAT_COUNT = "/v1/chat/completions/input_tokens"
BODIES: list[dict[str, Any]] = [
    {"input": "Hello"},
    {"input": "Hello", "instructions": "Be brief.", "stream": True, "max_output_tokens": 3},
    {"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"input": "Hello", "tools": [WEATHER], "tool_choice": "required"},
    {"input": "Hello", "text": {"format": {"type": "json_object"}}},
    {"input": "a " * 5000, "truncation": "auto"},
]


def counted(response: httpx.Response) -> int:
    assert response.status_code == 200, response.text
    return COUNT.validate_json(response.text, strict=True).input_tokens


@pytest.mark.parametrize("body", BODIES[:-1])
def test_a_count_is_what_the_generation_is_given(body: dict[str, Any]) -> None:
    async def asks(ask: Ask, engine: ScriptedEngine) -> None:
        count = counted(await ask(body, f"{RESPONSES}/input_tokens"))
        assert engine.requests == []
        assert (await ask(body)).status_code == 200
        assert len(engine.requests[0].prompt_ids) == count

    talk(says("x"), asks=asks)


def test_a_count_goes_on_with_what_is_stored() -> None:
    async def asks(ask: Ask, engine: ScriptedEngine) -> None:
        first = (await ask(HELLO)).json()
        body = {"input": "And then?", "previous_response_id": first["id"]}
        count = counted(await ask(body, f"{RESPONSES}/input_tokens"))
        assert count == (await ask(body)).json()["usage"]["input_tokens"]
        assert count > first["usage"]["input_tokens"]

    talk(says("x"), asks=asks)


def test_a_chat_is_counted_as_it_is_generated() -> None:
    message = {"role": "user", "content": "Hello"}
    function = {name: WEATHER[name] for name in ("name", "description", "parameters")}
    tools = [{"type": "function", "function": function}]
    short: dict[str, Any] = {"messages": [message]}

    async def asks(ask: Ask, engine: ScriptedEngine) -> None:
        plain = counted(await ask({**short, "stream": True, "n": 2}, CHAT_COUNT))
        twice = counted(await ask({"messages": [message, message]}, CHAT_COUNT))
        assert plain < twice < counted(await ask({**short, "tools": tools}, CHAT_COUNT))
        response = counted(await ask(HELLO, f"{RESPONSES}/input_tokens"))
        assert plain == response
        assert engine.requests == []

    talk(says("x"), asks=asks)


def test_what_does_not_fit_is_counted_too() -> None:
    async def asks(ask: Ask, engine: ScriptedEngine) -> None:
        assert (await ask({"input": "a " * 500})).status_code == 400
        long = counted(await ask({"input": "a " * 500}, f"{RESPONSES}/input_tokens"))
        messages = [{"role": "user", "content": "a " * 500}]
        assert counted(await ask({"messages": messages}, CHAT_COUNT)) == long > 64

    talk(says("x"), card(context_length=64), asks=asks)


@pytest.mark.parametrize("path", [CHAT_COUNT, f"{RESPONSES}/input_tokens"])
def test_what_a_generation_refuses_is_not_counted(path: str) -> None:
    async def asks(ask: Ask, engine: ScriptedEngine) -> None:
        wrong = await ask({**HELLO, "messages": [], "temperature": 5}, path)
        assert wrong.status_code == 400
        unknown = await ask({"model": "other", "input": "x"}, path)
        assert unknown.status_code in (400, 404)

    talk(says("x"), asks=asks)

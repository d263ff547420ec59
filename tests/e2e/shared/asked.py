"""Requests of real SDKs to every endpoint, and the types that the answers must have."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import anthropic.types
import httpx
import openai.types.chat
import openai.types.responses
from pydantic import TypeAdapter


class CompletionChunkChoice(openai.types.CompletionChoice):
    """The SDKs have one type for answers and chunks, which the API itself does not keep to:
    a chunk's reason is null until the last.
    """

    finish_reason: Literal["stop", "length", "content_filter"] | None  # type: ignore[assignment]


class CompletionChunk(openai.types.Completion):
    choices: list[CompletionChunkChoice]  # type: ignore[assignment]


# Names of types as the TypeScript SDKs have them, and the types of the Python SDKs.
TYPES: dict[str, Any] = {
    "OpenAI.Chat.ChatCompletion": openai.types.chat.ChatCompletion,
    "OpenAI.Chat.ChatCompletionChunk": openai.types.chat.ChatCompletionChunk,
    "OpenAI.Completion": openai.types.Completion,
    "CompletionChunk": CompletionChunk,
    "OpenAI.Responses.Response": openai.types.responses.Response,
    "OpenAI.Responses.ResponseStreamEvent": openai.types.responses.ResponseStreamEvent,
    "Anthropic.Message": anthropic.types.Message,
    "Anthropic.RawMessageStreamEvent": anthropic.types.RawMessageStreamEvent,
}
WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"name": {"enum": ["Bonn", "Rome"]}, "big": {"type": "boolean"}},
    "required": ["name", "big"],
    "additionalProperties": False,
}
HELLO = [{"role": "user", "content": "Hello there"}]
FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": WEATHER_SCHEMA}
CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}
RESPONSE_TOOLS = {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"}
MESSAGE_TOOLS = {
    "tools": [{"name": "weather", "description": "Tells it.", "input_schema": WEATHER_SCHEMA}],
    "tool_choice": {"type": "any"},
}
CHAT_CITY = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "city", "strict": True, "schema": CITY},
    }
}
RESPONSE_CITY = {
    "text": {"format": {"type": "json_schema", "name": "city", "strict": True, "schema": CITY}}
}


@dataclass(frozen=True)
class Asked:
    """A request whose answer, unary or streamed, has these types. It draws greedily."""

    name: str
    path: str
    body: Mapping[str, object]
    unary: str
    event: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _chat(name: str, **fields: object) -> Asked:
    body = {"model": "tiny", "messages": HELLO, "temperature": 0, "max_tokens": 300, **fields}
    types = "OpenAI.Chat.ChatCompletion", "OpenAI.Chat.ChatCompletionChunk"
    return Asked(f"chat {name}", "/v1/chat/completions", body, *types)


def _completion(name: str, **fields: object) -> Asked:
    body = {"model": "tiny", "prompt": "Once", "temperature": 0, "max_tokens": 12, **fields}
    types = "OpenAI.Completion", "CompletionChunk"
    return Asked(f"completion {name}", "/v1/completions", body, *types)


def _response(name: str, **fields: object) -> Asked:
    body = {"model": "tiny", "input": "Hi", "temperature": 0, "max_output_tokens": 300, **fields}
    types = "OpenAI.Responses.Response", "OpenAI.Responses.ResponseStreamEvent"
    return Asked(f"response {name}", "/v1/responses", body, *types)


def _message(name: str, **fields: object) -> Asked:
    body = {"model": "tiny", "messages": HELLO, "temperature": 0, "max_tokens": 300, **fields}
    types = "Anthropic.Message", "Anthropic.RawMessageStreamEvent"
    headers = {"anthropic-version": "2023-06-01"}
    return Asked(f"message {name}", "/v1/messages", body, *types, headers)


ASKED = (
    _chat("text", max_tokens=20),
    _chat("log-probabilities", logprobs=True, top_logprobs=2, max_tokens=8),
    _chat("choices", n=2, max_tokens=8),
    _chat("calls", **CHAT_TOOLS),
    _chat("schema", **CHAT_CITY),
    _completion("text"),
    _completion("echo", echo=True),
    _completion("log-probabilities", logprobs=2),
    _completion("prompts", prompt=[[72, 105], [72, 111]]),
    _response("text", max_output_tokens=20),
    _response("calls", **RESPONSE_TOOLS),
    _response("schema", **RESPONSE_CITY),
    _message("text", max_tokens=20),
    _message("calls", **MESSAGE_TOOLS),
)


def ask(url: str, asked: Asked) -> Any:
    answer = httpx.post(url + asked.path, json=asked.body, headers=asked.headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask_stream(url: str, asked: Asked, **fields: object) -> list[Any]:
    body = {**asked.body, **fields, "stream": True}
    with httpx.stream(
        "POST", url + asked.path, json=body, headers=asked.headers, timeout=60
    ) as answer:
        assert answer.status_code == 200, answer.read()
        return list(_events(answer.iter_lines()))


def _events(lines: Iterator[str]) -> Iterator[Any]:
    """Data of the events that the SDKs' types know: pings are none of them."""
    for line in lines:
        datum = line.removeprefix("data: ")
        if datum != line and datum != "[DONE]":
            value = json.loads(datum)
            if value.get("type") != "ping":
                yield value


def check(type_name: str, value: object) -> None:
    _adapter(type_name).validate_json(json.dumps(value), strict=True)


@cache
def _adapter(type_name: str) -> TypeAdapter[Any]:
    """Made once: that of a response's events takes longer than an answer."""
    return TypeAdapter(TYPES[type_name])

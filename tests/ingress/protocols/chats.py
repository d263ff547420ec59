"""OpenAI's chats: choices that tell their parts in deltas."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import httpx
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from tests.ingress.protocols.protocol import Caller, Said
from tests.openai.serving import CHAT, HELLO, chunks_of

COMPLETION = TypeAdapter(ChatCompletion)
CHUNK = TypeAdapter(ChatCompletionChunk)


class Chats(Caller):
    name = "chat"
    path = CHAT
    hello = HELLO
    tells_all: ClassVar[Mapping[str, Any]] = {"stream_options": {"include_usage": True}}
    several: ClassVar[Mapping[str, Any]] = {"n": 2}
    count_path = f"{CHAT}/input_tokens"

    def check(self, text: str) -> None:
        COMPLETION.validate_json(text, strict=True)

    def events_of(self, response: httpx.Response) -> list[Any]:
        chunks = chunks_of(response)
        for chunk in chunks:
            CHUNK.validate_python(chunk, strict=True)
        return chunks

    def told(self, body: Any) -> Any:
        return {"choices": plain(body), "usage": body["usage"]}

    def fold(self, events: list[Any]) -> Any:
        return {"choices": folded(events), "usage": events[-1]["usage"]}

    def said(self, told: Any) -> Said:
        choice = told["choices"][0]
        said = said_in(choice, choice["message"]["content"], told["usage"])
        calls = choice["message"]["tool_calls"]
        return replace(said, calls=tuple((call["name"], call["arguments"]) for call in calls))

    def tool(self, name: str, schema: object, **fields: object) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "parameters": schema, **fields}}

    def named(self, name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name}}


def said_in(choice: Any, text: str, usage: Any) -> Said:
    """Reads a choice of OpenAI's older kind."""
    by = {"stop": "end", "length": "limit", "tool_calls": "call"}[choice["finish_reason"]]
    stop = choice.get("stop_reason")
    return Said(
        text=text,
        ending=by if stop is None else f"stop {stop}",
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        output_tokens=usage["completion_tokens"],
    )


def folded(chunks: list[Any]) -> list[Any]:
    """The choices of the unary answer that the chunks stand for."""
    choices: dict[int, Any] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {"message": {}, "finish_reason": None})
            assert choice["finish_reason"] is None, "a choice goes on after its end"
            _add(choice, part)
    return [_known(choices[index]) for index in sorted(choices)]


def plain(body: Any) -> list[Any]:
    return [_known(choice) for choice in body["choices"]]


def _add(choice: Any, part: Any) -> None:
    message = choice["message"]
    for name, value in part["delta"].items():
        if name == "tool_calls":
            for call in value:
                _add_call(message.setdefault("tool_calls", []), call)
        elif isinstance(value, str) and name != "role":
            message[name] = message.get(name, "") + value
    for name, value in part.items():
        if name == "token_ids":
            choice[name] = choice.get(name, []) + value
        elif name == "logprobs" and value is not None:
            before = choice.get(name) or {"content": []}
            choice[name] = {"content": before["content"] + value["content"]}
        elif name in ("finish_reason", "stop_reason"):
            choice[name] = value


def _add_call(calls: list[Any], part: Any) -> None:
    if "id" in part:
        assert part["index"] == len(calls)
        assert part["function"]["arguments"] == ""
        calls.append({name: part[name] for name in ("id", "type")} | {"function": {}})
    function = calls[part["index"]]["function"]
    function.setdefault("name", part["function"].get("name"))
    function["arguments"] = function.get("arguments", "") + part["function"]["arguments"]


def _known(choice: Any) -> Any:
    """Returns what both forms of an answer say, without the ids that every answer makes anew."""
    message = choice["message"]
    return {
        "message": {
            "content": message.get("content") or "",
            "reasoning_content": message.get("reasoning_content", ""),
            "tool_calls": [call["function"] for call in message.get("tool_calls", [])],
        },
        "logprobs": {"content": (choice.get("logprobs") or {}).get("content") or []},
        "token_ids": choice.get("token_ids"),
        "finish_reason": choice["finish_reason"],
        "stop_reason": choice.get("stop_reason"),
    }


CHATS = Chats()

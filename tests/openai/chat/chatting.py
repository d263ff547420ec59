"""Helpers for tests of chat completions: checks answers against the SDK, and folds streams."""

import asyncio
from dataclasses import replace
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import CHAT, HELLO, chunks_of, post
from tests.text.cards import CHAT_TEMPLATE, card

COMPLETION = TypeAdapter(ChatCompletion)
CHUNK = TypeAdapter(ChatCompletionChunk)
ROOM = 4096  # tokens: tools take many in a prompt
ROOMY = card(context_length=ROOM)
KNOWS_TOOLS = CHAT_TEMPLATE + "{% if tools %}{% endif %}"
# As Qwen's: a switch, a budget's marks, and the effort for those that know one.
THINKS = CHAT_TEMPLATE + (
    "{% if enable_thinking is defined %}[thinking={{ enable_thinking }}]{% endif %}"
    "{% if reasoning_effort %}[effort={{ reasoning_effort }}]{% endif %}"
    "{# <think></think> #}"
)


def thinker(template: str = THINKS) -> ModelCard:
    return replace(card(), chat_template=template, dialect="hermes")


def ask(script: Any, *cards: ModelCard, **fields: object) -> Any:
    """A response to HELLO with more fields, of an engine that is idle again in the end."""

    async def asks() -> Any:
        engine = ScriptedEngine(script, *(cards or (ROOMY,)))
        response = await post(engine, CHAT, {**HELLO, **fields})
        assert engine.running == 0
        return response

    return asyncio.run(asks())


def whole(script: Any, *cards: ModelCard, **fields: object) -> Any:
    response = ask(script, *cards, **fields)
    assert response.status_code == 200, response.text
    COMPLETION.validate_json(response.text, strict=True)
    return response.json()


def streamed(script: Any, *cards: ModelCard, **fields: object) -> list[Any]:
    response = ask(script, *cards, **fields, stream=True)
    assert response.status_code == 200, response.text
    chunks = chunks_of(response)
    for chunk in chunks:
        CHUNK.validate_python(chunk, strict=True)
    return chunks


def refused(*cards: ModelCard, **fields: object) -> Any:
    """The error of a request that is the client's fault."""
    response = ask(says("x"), *cards, **fields)
    assert response.status_code == 400, response.text
    return response.json()["error"]


def asked(body: dict[str, object], **card_fields: Any) -> list[GenerationRequest]:
    """The requests that the engine gets."""
    return asked_of(card(**{"context_length": ROOM, **card_fields}), **body)


def asked_of(model: ModelCard, **fields: object) -> list[GenerationRequest]:
    async def asks() -> list[GenerationRequest]:
        engine = ScriptedEngine(says("x"), model)
        response = await post(engine, CHAT, {**HELLO, **fields})
        assert response.status_code == 200, response.text
        return engine.requests

    return asyncio.run(asks())


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

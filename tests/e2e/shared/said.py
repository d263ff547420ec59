"""Answers of all protocols, without what differs from one request to the next: ids, times.

They are greedy, and of the model whose replicas are killed.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from tests.e2e.server import Server

PAIR = "pair"
PAIR_REPLICAS = ("MantaModel", f"model-{PAIR}")
# Tokens of an answer: the last one to begin has to begin before the first one ends.
LONG = 2500
GREEDY: dict[str, Any] = {"model": PAIR, "temperature": 0}
HI = [{"role": "user", "content": "Sun"}]  # which the model answers at length
SCHEMA = {
    "type": "object",
    "properties": {"note": {"type": "string", "minLength": LONG - 100, "maxLength": LONG - 50}},
    "required": ["note"],
    "additionalProperties": False,
}
FUNCTION = {"name": "write_down", "description": "Writes it down.", "parameters": SCHEMA}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}

CHAT = "/v1/chat/completions"
LONG_CHAT = {**GREEDY, "messages": HI, "max_tokens": LONG}
TEXT = {**GREEDY, "prompt": "Once", "max_tokens": LONG, "ignore_eos": True}
UNARY: list[tuple[str, Mapping[str, Any]]] = [
    ("/v1/completions", TEXT),
    (CHAT, {**LONG_CHAT, "ignore_eos": True}),
    ("/v1/messages", LONG_CHAT),
    ("/completion", {**GREEDY, "prompt": "Once", "n_predict": LONG, "ignore_eos": True}),
]
STREAMS: list[tuple[str, Mapping[str, Any]]] = [
    (CHAT, {**LONG_CHAT, "ignore_eos": True, "stream_options": {"include_usage": True}}),
    (CHAT, {**LONG_CHAT, **TOOLS}),
    ("/v1/messages", LONG_CHAT),
    ("/v1/responses", {**GREEDY, "input": "Sun", "max_output_tokens": LONG}),
    ("/completion", {**GREEDY, "prompt": "Once", "n_predict": LONG, "ignore_eos": True}),
]
# Names of strings that are of the answer, and not of the request.
TOLD = frozenset(
    {"text", "content", "delta", "arguments", "partial_json", "name"}
    | {"finish_reason", "stop_reason", "stop_type", "status"}
)
COUNTS = frozenset({"completion_tokens", "output_tokens", "tokens_predicted"})
BEGUN = 80  # characters, some of which are of the answer itself


async def unary(client: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> str:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return said_in([answer.json()])


async def streamed(
    client: httpx.AsyncClient, path: str, body: Mapping[str, Any], began: Callable[[], object]
) -> str:
    """`began` is called with the first piece of the answer."""
    data: list[Any] = []
    has_begun = False
    async with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            data.append(json.loads(line.removeprefix("data: ")))
            if not has_begun and len(said_in(data)) > BEGUN:
                has_begun = True
                began()
    failures = [event for event in data if event.get("error")]
    assert not failures, failures[0]
    return said_in(data)


def said_in(data: list[Any]) -> str:
    """All told pieces, one after the other, and the last count of the tokens."""
    pieces: list[str] = []
    counts: list[int] = []

    def look(value: object, name: str) -> None:
        if isinstance(value, dict):
            for inner_name, inner in value.items():
                look(inner, inner_name)
        elif isinstance(value, list):
            for inner in value:
                look(inner, name)
        elif isinstance(value, str) and name in TOLD:
            pieces.append(value)
        elif isinstance(value, int) and name in COUNTS:
            counts.append(value)

    look(data, "")
    return "".join([*pieces, *map(str, counts[-1:])])


def both_serve(server: Server) -> bool:
    """Whether `pair` has both of its replicas."""
    replicas = server.http.get("/stats").json()["replicas"]
    return len([replica for replica in replicas if replica["model"] == PAIR]) == 2

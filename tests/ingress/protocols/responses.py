"""OpenAI's responses: items, whose events tell each part twice."""

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.ingress.protocols.protocol import Caller, Said, named_events
from tests.text.cards import card

PATH = "/v1/responses"
RESPONSE = TypeAdapter(Response)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RANDOM = re.compile(r'"(resp|msg|rs|fc|fco|call)_[0-9a-zA-Z]+"')
ADDED = "response.output_item.added"


class Responses(Caller):
    name = "responses"
    path = PATH
    hello: ClassVar[Mapping[str, Any]] = {"input": "Hello"}
    card = card(context_length=8192)
    words: ClassVar[Mapping[str, str]] = {"limit": "max_output_tokens"}
    names_stops = False
    count_path = f"{PATH}/input_tokens"

    def check(self, text: str) -> None:
        RESPONSE.validate_json(text, strict=True)

    def events_of(self, response: httpx.Response) -> list[Any]:
        events = named_events(response)
        for event in events:
            EVENT.validate_python(event, strict=True)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        return events

    def told(self, body: Any) -> Any:
        return anonymous(body)

    def fold(self, events: list[Any]) -> Any:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        response = events[-1]["response"]
        assert _spoken(events) == response["output"]
        return anonymous(response)

    def said(self, told: Any) -> Said:
        items, usage = told["output"], told["usage"]
        parts = [part for item in items if item["type"] == "message" for part in item["content"]]
        calls = [item for item in items if item["type"] == "function_call"]
        by = "call" if any(call["status"] == "completed" for call in calls) else "end"
        return Said(
            text="".join(part["text"] for part in parts),
            ending="limit" if told["incomplete_details"] else by,
            prompt_tokens=usage["input_tokens"],
            cached_tokens=usage["input_tokens_details"]["cached_tokens"],
            output_tokens=usage["output_tokens"],
            calls=tuple((call["name"], call["arguments"]) for call in calls),
        )

    def tool(self, name: str, schema: object, **fields: object) -> dict[str, Any]:
        return {"type": "function", "name": name, "parameters": schema, **fields}

    def form(self, schema: object) -> dict[str, Any]:
        named = {"type": "json_schema", "name": "n", "strict": True, "schema": schema}
        return {"text": {"format": named}}


def anonymous(body: Any) -> Any:
    """The same without what differs between two answers to one request."""
    named = json.loads(RANDOM.sub(r'"\1"', json.dumps(body)))
    ended = named["completed_at"] and 1
    return {**named, "created_at": 0, "completed_at": ended}


def _spoken(events: list[Any]) -> list[Any]:
    """The items that the deltas and their ends tell of, checked against each other."""
    items: list[Any] = []
    for event in events[2:-1]:
        assert event["output_index"] == len(items) - (event["type"] != ADDED)
        if event["type"] == ADDED:
            assert not items or items[-1]["done"]
            items.append({"text": "", "logprobs": [], "id": event["item"]["id"], "done": None})
        _hear(items[-1], event)
    return [item["done"] for item in items]


def _hear(item: Any, event: Any) -> None:
    assert item["done"] is None
    assert (event.get("item") or {"id": event.get("item_id")})["id"] == item["id"]
    match event["type"].split(".")[1:]:
        case ["content_part" | "reasoning_summary_part", "added"]:
            assert event["part"]["text"] == ""
        case ["content_part" | "reasoning_summary_part", "done"]:
            assert event["part"]["text"] == item["text"]
        case [_, "delta"]:
            item["text"] += event["delta"]
            item["logprobs"] += event.get("logprobs", [])
        case ["function_call_arguments", "done"]:
            assert event["arguments"] == item["text"]
        case [_, "done"] if "text" in event:
            assert event["text"] == item["text"]
            assert event.get("logprobs", []) == item["logprobs"]
        case ["output_item", "done"]:
            item["done"] = event["item"]


RESPONSES = Responses()

"""Every endpoint through a real `serve run`: strict types, and a stream that says the same."""

import json
from typing import Any

import anthropic
import httpx
import openai.types.responses
import openai.types.shared
import pytest
from pydantic import TypeAdapter

from tests.e2e.server import Server
from tests.e2e.shared.asked import ASKED, Asked, ask, ask_stream, check

# What differs from one asking to the next.
FRESH = {"id", "item_id", "call_id", "created", "created_at", "completed_at", "system_fingerprint"}


def same(value: Any) -> Any:
    """The value without what differs from one asking to the next."""
    if isinstance(value, dict):
        return {key: same(inner) for key, inner in value.items() if key not in FRESH}
    return [same(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.name)
def test_all_fits_the_sdks_types_strictly_and_the_stream_folds_to_the_answer(
    server: Server, asked: Asked
) -> None:
    unary, events = ask(server.url, asked), ask_stream(server.url, asked)
    check(asked.unary, unary)
    for event in events:
        check(asked.event, event)
    assert FOLDS[asked.unary](events) == same(told(unary))


def told(unary: Any) -> Any:
    """Returns the part of an answer that its stream tells too.

    Usage comes there only when asked for.
    """
    if unary.get("object") in ("chat.completion", "text_completion"):
        return unary["choices"]
    return {**unary, "usage": None}


def fold_chat(chunks: list[Any]) -> Any:
    choices: dict[int, Any] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        empty = {"index": choice["index"], "message": {"content": None}, "logprobs": None}
        known = choices.setdefault(choice["index"], empty)
        _add_delta(known["message"], choice["delta"])
        known["finish_reason"] = choice["finish_reason"]
        if choice["logprobs"] is not None:
            entries = known["logprobs"] = known["logprobs"] or {"content": [], "refusal": None}
            entries["content"] += choice["logprobs"]["content"]
    for choice in choices.values():
        if choice["message"].get("tool_calls"):
            choice["message"]["content"] = choice["message"]["content"] or None
    return same([choices[index] for index in sorted(choices)])


def _add_delta(message: Any, delta: Any) -> None:
    for call in delta.pop("tool_calls", None) or []:
        calls = message.setdefault("tool_calls", [])
        if call.pop("index") == len(calls):
            calls.append(call)
        else:
            calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    if "content" in delta:
        message["content"] = (message["content"] or "") + (delta.pop("content") or "")
    message |= delta


def fold_completion(chunks: list[Any]) -> Any:
    choices: dict[int, Any] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        known = choices.setdefault(choice["index"], {**choice, "text": "", "logprobs": None})
        known["text"] += choice["text"]
        known["finish_reason"] = choice["finish_reason"]
        for key, values in (choice["logprobs"] or {}).items():
            known["logprobs"] = known["logprobs"] or {}
            known["logprobs"].setdefault(key, []).extend(values)
    return same([choices[index] for index in sorted(choices)])


def fold_response(events: list[Any]) -> Any:
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(events)))
    return same({**events[-1]["response"], "usage": None})


def fold_message(events: list[Any]) -> Any:
    """Folds by hand: the SDK's accumulator has its own test, over its own stream."""
    message = {**events[0]["message"], "content": [], "usage": None}
    pieces: list[str] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                message["content"].append(event["content_block"])
                pieces = []
            case "content_block_delta":
                pieces.append(next(v for k, v in event["delta"].items() if k != "type"))
            case "content_block_stop":
                block = message["content"][-1]
                kind, text = block["type"], "".join(pieces)
                block |= {"input": json.loads(text)} if kind == "tool_use" else {kind: text}
            case "message_delta":
                message |= event["delta"]
    return same(message)


def test_lists_counts_and_errors_fit_their_types_too(server: Server) -> None:
    anthropics = {"anthropic-version": "2023-06-01"}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for model in client.get("/v1/models").json()["data"]:
            strictly(openai.types.Model, model)
            strictly(openai.types.Model, client.get(f"/v1/models/{model['id']}").json())
        for model in client.get("/v1/models", headers=anthropics).json()["data"]:
            strictly(anthropic.types.ModelInfo, model)
        count = client.post("/v1/messages/count_tokens", json=body).json()
        strictly(anthropic.types.MessageTokensCount, count)
        counted = client.post("/v1/responses/input_tokens", json={"input": "Hi"}).json()
        strictly(openai.types.responses.InputTokenCountResponse, counted)
        refused = client.post("/v1/chat/completions", json={}).json()
        strictly(openai.types.shared.ErrorObject, refused["error"])
        unknown = client.post("/v1/messages", json={}).json()
        strictly(anthropic.types.ErrorResponse, unknown)


def strictly(kind: type[Any], value: object) -> None:
    TypeAdapter(kind).validate_json(json.dumps(value), strict=True)


@pytest.mark.parametrize(
    "asked",
    [asked for asked in ASKED if asked.unary == "Anthropic.Message"],
    ids=lambda asked: asked.name,
)
def test_the_anthropic_sdk_accumulates_the_stream(server: Server, asked: Asked) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        body: dict[str, Any] = {**asked.body}
        greedy = {"temperature": body.pop("temperature")}  # no argument of this SDK
        unary = client.messages.create(**body, extra_body=greedy)
        with client.messages.stream(**body, extra_body=greedy) as stream:
            final = stream.get_final_message()
    assert [block.type for block in final.content] == [block.type for block in unary.content]
    assert (final.stop_reason, final.stop_sequence) == (unary.stop_reason, unary.stop_sequence)
    assert final.usage.output_tokens == unary.usage.output_tokens


FOLDS = {
    "OpenAI.Chat.ChatCompletion": fold_chat,
    "OpenAI.Completion": fold_completion,
    "OpenAI.Responses.Response": fold_response,
    "Anthropic.Message": fold_message,
}

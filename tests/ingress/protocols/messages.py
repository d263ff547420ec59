"""Anthropic's messages: blocks, of which one ends before the next begins."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import httpx
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from pydantic_core import from_json

from deployments.anthropic.events import PING
from deployments.contract.model_card import ModelCard
from tests.ingress.protocols.protocol import Caller, Said, named_events
from tests.text.cards import card

PATH = "/v1/messages"
COUNT = f"{PATH}/count_tokens"
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
MESSAGE = TypeAdapter(Message)
USER: dict[str, Any] = {"role": "user", "content": "Hello"}
# A model that thinks and calls as Hermes does, and shows in its prompt all that it was given.
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | map(attribute='function') | map(attribute='name') | join }}"
    "{{ tools | map(attribute='function') | map(attribute='description') | join }}</tools>"
    "{% endif %}"
    "{% if reasoning_effort %}<effort>{{ reasoning_effort }}</effort>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}#{{ c.id }}</tool_call>"
    "{% endfor %}"
    "{% if m.role == 'tool' %}[{{ m.name }}#{{ m.tool_call_id }}]{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% if enable_thinking %}<think>\n{% endif %}"
    "{% endif %}"
)


def thinker(context_length: int = 2048) -> ModelCard:
    return replace(card(context_length=context_length), chat_template=TEMPLATE, dialect="hermes")


class Messages(Caller):
    name = "messages"
    path = PATH
    hello: ClassVar[Mapping[str, Any]] = {"model": "tiny", "max_tokens": 400, "messages": [USER]}
    card = thinker()
    words: ClassVar[Mapping[str, str]] = {"limit": "max_tokens", "stop": "stop_sequences"}
    silence = PING
    count_path = COUNT

    def check(self, text: str) -> None:
        MESSAGE.validate_json(text, strict=True)

    def events_of(self, response: httpx.Response) -> list[Any]:
        events = [event for event in named_events(response) if event["type"] != "ping"]
        for event in events:
            EVENT.validate_json(json.dumps(event), strict=True)
        return events

    def told(self, body: Any) -> Any:
        return nameless(body)

    def fold(self, events: list[Any]) -> Any:
        return nameless(folded(events))

    def said(self, told: Any) -> Said:
        usage, reason = told["usage"], told["stop_reason"]
        endings = {"end_turn": "end", "max_tokens": "limit", "tool_use": "call"}
        calls = [block for block in told["content"] if block["type"] == "tool_use"]
        texts = [block["text"] for block in told["content"] if block["type"] == "text"]
        return Said(
            text="".join(texts),
            ending=endings.get(reason) or f"stop {told['stop_sequence']}",
            prompt_tokens=usage["input_tokens"] + usage["cache_read_input_tokens"],
            cached_tokens=usage["cache_read_input_tokens"],
            output_tokens=usage["output_tokens"],
            calls=tuple((block["name"], json.dumps(block["input"])) for block in calls),
        )

    def tool(self, name: str, schema: object, **fields: object) -> dict[str, Any]:
        return {"name": name, "input_schema": schema, **fields}

    def choice(self, name: str, parallel: bool = True) -> dict[str, Any]:
        kinds = {"auto": "auto", "none": "none", "required": "any"}
        chosen: dict[str, Any] = {"type": kinds.get(name, "tool")}
        chosen |= {} if name in kinds else {"name": name}
        return {"tool_choice": chosen | ({} if parallel else {"disable_parallel_tool_use": True})}

    def form(self, schema: object) -> dict[str, Any]:
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


def folded(events: list[Any]) -> Any:
    """The unary answer that the events stand for; each block has ended before the next begins."""
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    message: dict[str, Any] = dict(events[0]["message"])
    blocks: list[Any] = []
    is_open = False
    for event in events[1:-2]:
        begins = event["type"] == "content_block_start"
        if begins:
            blocks.append({**event["content_block"], "json": ""})
        assert (is_open, event["index"]) == (not begins, len(blocks) - 1)
        if event["type"] == "content_block_delta":
            _add(blocks[-1], event["delta"])
        is_open = event["type"] != "content_block_stop"
    assert not is_open
    message |= events[-2]["delta"]
    message["usage"] |= events[-2]["usage"]
    may_be_cut = message["stop_reason"] != "tool_use"
    return {**message, "content": [_finished(block, may_be_cut) for block in blocks]}


def _add(block: Any, delta: Any) -> None:
    match delta["type"]:
        case "input_json_delta":
            block["json"] += delta["partial_json"]
        case "text_delta" | "thinking_delta" | "signature_delta" as kind:
            field = kind.removesuffix("_delta")
            block[field] += delta[field]


def _finished(block: Any, may_be_cut: bool) -> Any:
    partial = block.pop("json")
    return {**block, "input": from_json(partial, allow_partial=may_be_cut)} if partial else block


def nameless(message: Any) -> Any:
    """Returns the message with empty ids: they are drawn anew for each answer."""
    blocks = [{**block, "id": ""} if "id" in block else block for block in message["content"]]
    return {**message, "id": "", "content": blocks}


MESSAGES = Messages()

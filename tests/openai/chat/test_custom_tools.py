"""Custom tools of chats: they take a text, which fits its grammar, and come again as they were."""

import json
from typing import Any

import pytest

from tests.ingress.engines import says
from tests.openai.chat.chatting import ask, asked, whole
from tests.openai.responses.responding import prompt_of
from tests.openai.serving import HELLO, chunks_of
from tests.text.constrained import may_say

TIME = {
    "type": "custom",
    "custom": {
        "name": "at",
        "description": "Waits.",
        "format": {
            "type": "grammar",
            "grammar": {"syntax": "regex", "definition": r"\d{2}:\d{2}"},
        },
    },
}
NOTE = {"type": "custom", "custom": {"name": "note"}}
TEXT = 'One "two"\n\\ \U0001f642'


def call(name: str, text: str) -> str:
    arguments = json.dumps({"input": text})
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 9])
def test_a_call_has_its_text_streamed_as_whole(size: int) -> None:
    [choice] = whole(says(call("note", TEXT)), tools=[NOTE])["choices"]
    [called] = choice["message"]["tool_calls"]
    assert called["id"]
    assert (called["type"], called["custom"]) == ("custom", {"name": "note", "input": TEXT})
    assert choice["finish_reason"] == "tool_calls"
    chunks = chunks_of(ask(says(call("note", TEXT), size=size), tools=[NOTE], stream=True))
    first, *rest = (
        part
        for chunk in chunks
        for choice in chunk["choices"]
        for part in choice["delta"].get("tool_calls", [])
    )
    assert first["custom"] == {"name": "note", "input": ""}
    assert "".join(part["custom"]["input"] for part in rest) == TEXT


@pytest.mark.parametrize(("text", "fits"), [("12:30", True), ("noon", False), ("12:300", False)])
def test_a_text_fits_its_grammar(text: str, fits: bool) -> None:
    choice = {"type": "custom", "custom": {"name": "at"}}
    choices: list[dict[str, object]] = [{"tool_choice": choice}, {"tool_choice": "required"}]
    for fields in choices:
        [request] = asked({"tools": [TIME], **fields})
        assert may_say(request, call("at", text)) == fits


def test_calls_come_again() -> None:
    made = {"id": "c", "type": "custom", "custom": {"name": "note", "input": TEXT}}
    messages: list[dict[str, Any]] = [
        *HELLO["messages"],
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c", "content": "noted"},
    ]
    [request] = asked({"messages": messages, "tools": [NOTE]})
    shown = json.dumps({"input": TEXT}, ensure_ascii=False)
    assert f'{{"name": "note", "arguments": {shown}}}' in prompt_of(request)

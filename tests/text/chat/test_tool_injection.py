"""Tools for templates that know none become text that the generic dialect speaks."""

import json
from collections.abc import Mapping

from deployments.text.chat.tool_injection import inject, instructions
from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.registry import DIALECTS
from deployments.text.reply import fold_reply
from deployments.text.tool import Tool
from tests.text.dialects.transcripts import TOOLS, WEATHER

USER = {"role": "user", "content": "Warm in Köln?"}
CALLS = {
    "role": "assistant",
    "content": "I'll look.",
    "tool_calls": [
        {
            "id": "1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Köln"}},
        },
        {"id": "2", "type": "function", "function": {"name": "ping", "arguments": {}}},
    ],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "2", "content": "pong"},
    {"role": "tool", "tool_call_id": "1", "content": '"20 °C"'},
]


def roles(messages: list[Mapping[str, object]]) -> list[object]:
    return [message["role"] for message in messages]


def test_tools_are_told_in_a_system_message_of_their_own() -> None:
    told = inject([USER], TOOLS, required=False)
    assert roles(told) == ["system", "user"]
    assert told[0]["content"] == instructions(TOOLS, required=False)
    assert told[1] == USER


def test_a_system_message_keeps_its_text() -> None:
    told = inject([{"role": "system", "content": "Be brief."}, USER], TOOLS, required=False)
    assert roles(told) == ["system", "user"]
    assert told[0]["content"] == "Be brief.\n\n" + instructions(TOOLS, required=False)


def test_each_tool_is_told_as_json_on_its_line() -> None:
    lines = instructions((WEATHER,), required=False).splitlines()
    (described,) = [json.loads(line) for line in lines if line.startswith('{"name": "get_')]
    assert described == {
        "name": "get_weather",
        "description": WEATHER.description,
        "parameters": WEATHER.parameters,
    }


def test_what_is_required_is_said() -> None:
    assert instructions(TOOLS, required=True) != instructions(TOOLS, required=False)
    assert "must" in instructions(TOOLS, required=True)


def test_calls_in_the_past_are_written_as_the_dialect_writes_them() -> None:
    _, _, said = inject([USER, CALLS], TOOLS, required=False)
    parser = DIALECTS["generic"].parser(ReplyContext(tools=TOOLS))
    reply = fold_reply([*parser.push(str(said["content"])), *parser.finish()])
    assert reply.content == "I'll look."
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("get_weather", {"city": "Köln"}),
        ("ping", {}),
    ]


def test_results_are_a_turn_of_the_user_and_name_their_tool() -> None:
    told = inject([USER, CALLS, *RESULTS, {"role": "user", "content": "So?"}], TOOLS, False)
    assert roles(told) == ["system", "user", "assistant", "user"]
    results = str(told[-1]["content"]).split("\n")
    assert results[:3] == [
        "<tool_response>", '{"name": "ping", "content": "pong"}', "</tool_response>",
    ]  # fmt: skip
    assert json.loads(results[4]) == {"name": "get_weather", "content": '"20 °C"'}
    assert results[-1] == "So?"


def test_a_result_of_an_unknown_call_is_told_as_it_is() -> None:
    (told,) = inject([{"role": "tool", "tool_call_id": "9", "content": "x"}], (), required=False)
    assert told == {"role": "user", "content": "<tool_response>\nx\n</tool_response>"}


def test_without_tools_a_conversation_is_as_it_was() -> None:
    assert inject([USER, {"role": "assistant", "content": "Yes."}], (), required=False) == [
        USER,
        {"role": "assistant", "content": "Yes."},
    ]


def test_messages_are_left_as_they_were() -> None:
    messages: list[Mapping[str, object]] = [USER, CALLS, *RESULTS]
    before = json.dumps(messages)
    inject(messages, (Tool("f"),), required=True)
    assert json.dumps(messages) == before

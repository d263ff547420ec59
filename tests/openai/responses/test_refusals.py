"""Everything wrong in a request for a response is a 4xx that names it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.ingress.engines import says
from tests.malformed.cases import cases
from tests.openai.responses.responding import (
    HELLO,
    RESPONSES,
    ROOMY,
    THINKER,
    WEATHER,
    answered,
    talking,
)

LOGPROBS = "message.output_text.logprobs"
NAMED = {"type": "function", "name": "weather"}


def item(**fields: object) -> dict[str, object]:
    return {"input": [{"role": "user", "content": "x"}, fields]}


def part(**fields: object) -> dict[str, object]:
    return item(role="user", content=[fields])


def tool(**fields: object) -> dict[str, object]:
    return {"tools": [{**WEATHER, **fields}]}


def namespace(**fields: object) -> dict[str, object]:
    return {"tools": [{"type": "namespace", "name": "n", "tools": [WEATHER], **fields}]}


def custom(**fields: object) -> dict[str, object]:
    return {"tools": [{"type": "custom", "name": "c", **fields}]}


def grammar(syntax: str, definition: str) -> dict[str, object]:
    return {"type": "grammar", "syntax": syntax, "definition": definition}


def added(*tools: object) -> dict[str, object]:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def called(**fields: object) -> dict[str, object]:
    return item(
        **{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"} | fields
    )


def schema(value: object, **fields: object) -> dict[str, object]:
    form = {"type": "json_schema", "name": "n", "schema": value, **fields}
    return {"text": {"format": form}}


def allowed(mode: str, *tools: object) -> dict[str, object]:
    choice = {"type": "allowed_tools", "mode": mode, "tools": list(tools)}
    return {"tools": [WEATHER], "tool_choice": choice}


SEARCH = {"type": "web_search", "search_context_size": "low"}
UNIQUE = {"type": "array", "uniqueItems": True}
OUTPUT_TEXT = {"type": "output_text", "text": "x"}
OUTPUT = {"type": "function_call_output"}
WRONG: list[tuple[dict[str, object], str]] = [
    (item(), "input[1].role"),
    (item(role="user"), "input[1].content"),
    (item(role="alien", content="x"), "input[1].role"),
    (item(role="user", content=[]), "input[1].content"),
    (item(role="user", content=5), "input[1].content"),
    (item(role="user", content="x", foo=1), "input[1].foo"),
    (item(role="assistant", content="x", phase="end"), "input[1].phase"),
    (item(type="message", role="tool", content="x"), "input[1].role"),
    (item(type="computer_call", id="x"), "input[1].type"),
    (item(type="compaction_trigger"), "input[1].type"),
    (item(type="custom_tool_call", call_id="c", name="f"), "input[1].input"),
    (item(type="custom_tool_call_output", call_id="unknown", output="x"), "input[1].call_id"),
    (item(type="tool_search_call", arguments="{}"), "input[1].arguments"),
    (item(type="tool_search_output", tools=[{"type": "mcp"}]), "input[1].tools[0]"),
    (item(type="computer_call_output", call_id="c"), "input[1].type"),
    (item(type=5), "input[1].type"),
    (part(type="input_image", image_url="x"), "input[1].content[0].image_url"),
    (part(type="input_file", file_id="x"), "input[1].content[0].file_id"),
    (part(type="input_audio"), "input[1].content[0].input_audio"),
    (part(type="text", text="x"), "input[1].content[0].type"),
    (part(type="input_text"), "input[1].content[0].text"),
    (part(type="input_text", text=1), "input[1].content[0].text"),
    (
        item(role="assistant", content=[{**OUTPUT_TEXT, "annotations": [{"type": "file_path"}]}]),
        "input[1].content[0].annotations",
    ),
    (called(arguments={}), "input[1].arguments"),
    (called(name=""), "input[1].name"),
    (called(call_id=None), "input[1].call_id"),
    (called(namespace=5), "input[1].namespace"),
    (called(status="done"), "input[1].status"),
    (called(**{"async": True}), "input[1].async"),
    (called(caller={"type": "program", "caller_id": "p"}), "input[1].caller.type"),
    (item(**OUTPUT, output="x"), "input[1].call_id"),
    (item(**OUTPUT, call_id="c"), "input[1].output"),
    (item(**OUTPUT, call_id="c", output=5), "input[1].output"),
    (item(**OUTPUT, call_id="unknown", output="x"), "input[1].call_id"),
    (item(type="reasoning", summary="x"), "input[1].summary"),
    (item(type="reasoning", encrypted_content="x"), "input[1].encrypted_content"),
    (item(type="item_reference"), "input[1].id"),
    ({"stream": True, "stream_options": {"include_usage": True}}, "stream_options.include_usage"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
    ),
    ({"include": LOGPROBS}, "include"),
    ({"include": [LOGPROBS], "tools": [WEATHER]}, "include"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, "tools[0]"),
    ({"tools": [{"type": "code_interpreter", "container": "x"}]}, "tools[0]"),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]"),
    (tool(name="a b"), "tools[0].name"),
    (tool(name=""), "tools[0].name"),
    (tool(parameters="x"), "tools[0].parameters"),
    (tool(parameters={"type": "array"}), "tools[0].parameters"),
    (tool(strict="yes"), "tools[0].strict"),
    (tool(defer_loading="yes"), "tools[0].defer_loading"),
    (namespace(name="a b"), "tools[0].name"),
    (namespace(tools=[{"type": "web_search"}]), "tools[0].tools[0]"),
    (namespace(tools=[{**WEATHER, "strict": 1}]), "tools[0].tools[0].strict"),
    (namespace(tools=[WEATHER, WEATHER]), "tools[0].tools[1].name"),
    (custom(format={"type": "json"}), "tools[0].format.type"),
    (custom(format={"type": "grammar", "syntax": "lark"}), "tools[0].format.definition"),
    (custom(format=grammar("lark", "start: (")), "tools[0].format.definition"),
    (custom(format=grammar("lark", 'start: "a" ~x')), "tools[0].format.definition"),
    (custom(format=grammar("regex", "(?=a)")), "tools[0].format.definition"),
    (custom(format=grammar("gbnf", "root ::= a")), "tools[0].format.syntax"),
    (custom(parameters={}), "tools[0].parameters"),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "custom", "name": "weather"}},
        "tool_choice.name",
    ),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool_search"}}, "tool_choice.type"),
    ({"tools": [WEATHER], "tool_choice": {**NAMED, "namespace": "n"}}, "tool_choice.name"),
    (tool(allowed_callers=["programmatic"]), "tools[0].allowed_callers[0]"),
    (tool(**{"async": True}), "tools[0].async"),
    (tool(output_schema="x"), "tools[0].output_schema"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"tools": [SEARCH, {**WEATHER, "parameters": {"type": "array"}}]}, "tools[1].parameters"),
    ({"tools": [SEARCH, {"type": "function", "name": ""}]}, "tools[1].name"),
    ({"input": [added(WEATHER)]}, "input"),
    (item(**added({"type": "file_search"})), "input[1].tools[0]"),
    (item(**added() | {"role": "user"}), "input[1].role"),
    (item(**added(WEATHER | {"parameters": {"type": "array"}})), "input[1].tools[0].parameters"),
    ({"tool_choice": NAMED}, "tool_choice.name"),
    ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
    (allowed("none", NAMED), "tool_choice.mode"),
    (allowed("auto"), "tool_choice.tools"),
    (allowed("auto", {"type": "mcp", "server_label": "x"}), "tool_choice.tools[0]"),
    (allowed("required", SEARCH), "tool_choice.tools"),
    (allowed("auto", SEARCH, {"type": "function"}), "tool_choice.tools[1].name"),
    (allowed("auto", {**NAMED, "name": "other"}), "tool_choice.tools"),
    (schema({}, name="a b"), "text.format.name"),
    (schema("x"), "text.format.schema"),
    (schema({"type": "alien"}), "text.format.schema"),
    (schema({}, strict=1), "text.format.strict"),
    (schema(UNIQUE, strict=True), "text.format.schema"),
    (tool(strict=True, parameters={"properties": {"a": UNIQUE}}), "tools[0].parameters"),
    (
        {"reasoning": {"summary": "auto", "generate_summary": "concise"}},
        "reasoning.generate_summary",
    ),
    ({"top_logprobs": 21, "include": [LOGPROBS]}, "top_logprobs"),
    ({"metadata": {"a": 5}}, "metadata.a"),
    ({"conversation": "c", "previous_response_id": "r"}, "previous_response_id"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda value: str(value)[:60])
def test_a_wrong_field_is_refused_by_its_name(fields: dict[str, object], param: str) -> None:
    response = answered(says("x"), **fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param, error["message"]
    assert error["type"] == "invalid_request_error"
    assert param in error["message"]


async def test_what_is_refused_leaves_the_server_as_it_was() -> None:
    bodies = [{**HELLO, **fields} for fields, _ in WRONG]
    bodies += [json.loads(case.body) for case in cases() if case.path == RESPONSES and case.param]
    async with talking(says("x")) as (ask, engine):
        for body in bodies:
            assert (await ask(body)).status_code == 400
            assert (await ask(body, f"{RESPONSES}/input_tokens")).status_code == 400
        assert engine.requests == []
        assert (await ask(HELLO)).status_code == 200


def test_what_is_not_there_is_404() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model": "other"}, "model"),
        ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0].id"),
    ]
    for fields, param in wrong:
        response = answered(says("x"), **fields)
        assert response.status_code == 404
        assert response.json()["error"]["param"] == param


def test_what_continues_a_response_that_is_not_there_is_told_in_openais_words() -> None:
    for stream in (False, True):
        response = answered(says("x"), previous_response_id="resp_x", stream=stream)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["code"], error["param"]) == (
            "previous_response_not_found",
            "previous_response_id",
        )


def test_a_stream_is_refused_with_a_status_and_not_an_event() -> None:
    response = answered(says("x"), stream=True, temperature=5)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


def test_log_probabilities_need_a_model_that_does_not_think() -> None:
    fields: dict[str, object] = {"include": [LOGPROBS]}
    response = answered(says("x"), THINKER, **fields)
    assert response.json()["error"]["param"] == "include"
    quiet = answered(says("x"), THINKER, **fields, reasoning={"effort": "none"})
    assert len(quiet.json()["output"][0]["content"][0]["logprobs"]) == 1


def test_an_instruction_that_the_template_will_not_have_is_the_inputs_fault() -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    model = replace(ROOMY, chat_template=template)
    error = answered(says("x"), model, instructions="Be kind.").json()["error"]
    assert error["param"] == "input"

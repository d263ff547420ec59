"""Tools that a client runs itself: in namespaces, with a text for input, or found by a search."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.ingress.engines import says
from tests.openai.responses.responding import (
    ROOMY,
    THINKER,
    answered,
    asked,
    prompt_of,
    streamed,
    talking,
    whole,
)
from tests.openai.responses.test_input import TOOLED, rendered, said, user
from tests.text.constrained import may_say

LIST = {"type": "function", "name": "list", "parameters": {"type": "object", "properties": {}}}
WEATHER = {
    "type": "namespace",
    "name": "mcp__weather",
    "description": "Of a city.",
    "tools": [LIST],
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: "*** Begin Patch" LF line+\nline: "+" /(.*)/ LF\n%import common.LF\n',
    },
}
NOTE = {"type": "custom", "name": "note", "format": {"type": "text"}}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}
TEXT = '*** Begin Patch\n+say("\U0001f642\\n")\t\n'


def calls(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


# (tool, what the model writes, the item of the call without its ids)
CALLED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (
        WEATHER,
        calls("mcp__weather__list", {"a": 1}),
        {"type": "function_call", "namespace": "mcp__weather", "name": "list"}
        | {"arguments": '{"a": 1}'},
    ),
    (
        {**WEATHER, "name": "functions"},
        calls("list", {}),
        {"type": "function_call", "namespace": "functions", "name": "list", "arguments": "{}"},
    ),
    (
        PATCH,
        calls("apply_patch", {"input": TEXT}),
        {"type": "custom_tool_call", "name": "apply_patch", "input": TEXT},
    ),
    (
        {**WEATHER, "tools": [NOTE]},
        calls("mcp__weather__note", {"input": "a"}),
        {"type": "custom_tool_call", "namespace": "mcp__weather", "name": "note", "input": "a"},
    ),
    (
        SEARCH,
        calls("tool_search", {"query": "x"}),
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}},
    ),
]


@pytest.mark.parametrize(("tool", "text", "item"), CALLED)
@pytest.mark.parametrize("size", [1, 50])
def test_a_call_is_of_the_kind_of_its_tool(
    tool: dict[str, Any], text: str, item: dict[str, Any], size: int
) -> None:
    """Streamed as whole, at the top of a request as in an item."""
    named = {"id", "call_id", "status"}
    body = whole(says(text), tools=[tool])
    [called] = body["output"]
    assert {name: value for name, value in called.items() if name not in named} == item
    assert called["status"] == "completed"
    assert set(called) == named | set(item)
    assert body["tools"][0]["type"] == tool["type"]
    added = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    events = streamed(says(text, size=size), input=[added, user("x")])
    [done] = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert {name: value for name, value in done.items() if name not in named} == item
    if "input" in item:
        deltas = [
            event for event in events if event["type"] == "response.custom_tool_call_input.delta"
        ]
        assert "".join(delta["delta"] for delta in deltas) == item["input"]
        [end] = [
            event for event in events if event["type"] == "response.custom_tool_call_input.done"
        ]
        assert (end["input"], end["item_id"]) == (item["input"], done["id"])


def test_a_text_that_is_cut_off_is_an_incomplete_call() -> None:
    text = calls("note", {"input": "one two three"})
    [called] = whole(says(text), tools=[NOTE], max_output_tokens=len(text) - 25)["output"]
    assert called["status"] == "incomplete"
    assert "one two three".startswith(called["input"])


def test_names_of_two_namespaces_are_apart() -> None:
    other = {**WEATHER, "name": "mcp__files"}
    clash = {**LIST, "name": "mcp__files__list"}
    body = whole(says(calls("mcp__files__list_2", {})), tools=[WEATHER, other, clash])
    assert body["output"][0]["namespace"] == "mcp__files"
    assert [tool["name"] for tool in body["tools"]] == [
        "mcp__weather",
        "mcp__files",
        "mcp__files__list",
    ]


CHOICES: list[tuple[object, list[str]]] = [
    ({"type": "function", "name": "list"}, ["mcp__weather__list"]),
    ({"type": "function", "name": "list", "namespace": "mcp__weather"}, ["mcp__weather__list"]),
    ({"type": "custom", "name": "note"}, ["note"]),
    ({"type": "tool_search"}, ["tool_search"]),
    (
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "namespace", "name": "mcp__weather"}, {"type": "tool_search"}],
        },
        ["mcp__weather__list", "tool_search"],
    ),
]


@pytest.mark.parametrize(("choice", "names"), CHOICES)
def test_a_choice_names_tools_of_every_kind(choice: object, names: list[str]) -> None:
    tools = [WEATHER, NOTE, PATCH, SEARCH]
    body = {"input": "x", "tools": tools, "tool_choice": choice}
    request = asked(body, ROOMY)
    for name in ("mcp__weather__list", "note", "apply_patch", "tool_search"):
        arguments = {"input": "x"} if name == "note" else {}
        assert may_say(request, calls(name, arguments)) == (name in names)


TEXTS = [TEXT, '*** Begin Patch\n+"\n+\\\n', "*** Begin Patch\n", "+x\n", TEXT + "x", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_fits_the_grammar_of_its_tool(text: str) -> None:
    choice = {"type": "custom", "name": "apply_patch"}
    body = {"input": "x", "tools": [PATCH], "tool_choice": choice}
    request = asked(body, ROOMY)
    fits = text in TEXTS[:2]
    written = f'{{"name": "apply_patch", "arguments": {json.dumps({"input": text})}}}'
    escaped = written.replace("\\ud83d\\ude42", "\U0001f642")
    assert may_say(request, f"<tool_call>\n{escaped}\n</tool_call>") == fits


def test_the_prompt_has_the_tools_their_namespace_and_their_grammar() -> None:
    shows = (
        "{% for t in tools or [] %}{{ t.function.name }}: {{ t.function.description }};{% endfor %}"
    )
    model = replace(TOOLED, chat_template=f"{TOOLED.chat_template}{shows}")
    prompt = rendered([user("x")], model, tools=[WEATHER, PATCH, SEARCH])
    for told in ("mcp__weather__list: ", "Of a city.", "Edits files.", "LF line+", "Finds tools."):
        assert told in prompt


PARTS = [{"type": "input_text", "text": "done"}]
HISTORY: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "1", "namespace": "mcp__weather", "name": "list"}
    | {"arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "2", "name": "apply_patch", "input": TEXT},
    {"type": "custom_tool_call", "call_id": "3", "namespace": "mcp__weather", "name": "note"}
    | {"input": "n", "id": "ctc_1", "status": "completed"},
    {"type": "function_call_output", "call_id": "1", "output": PARTS},
    {"type": "custom_tool_call_output", "call_id": "2", "output": "patched"},
    {"type": "custom_tool_call_output", "call_id": "3", "output": PARTS},
]


def test_calls_and_their_results_come_again() -> None:
    prompt = rendered([user("x"), *HISTORY, user("y")], tools=[WEATHER, PATCH])
    patch = json.dumps({"input": TEXT}, ensure_ascii=False)
    assert (
        f'mcp__weather__list={{}}apply_patch={patch}mcp__weather__note={{"input": "n"}}' in prompt
    )
    assert prompt.count("<|im_start|>tool\ndone") == 2
    assert "<|im_start|>tool\npatched" in prompt


def test_what_a_search_has_found_are_tools_from_then_on() -> None:
    deferred = {**LIST, "name": "found", "defer_loading": True}
    searched = {"type": "tool_search_call", "call_id": "s", "execution": "client"}
    history = [
        user("x"),
        {**searched, "arguments": {"query": "q"}},
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": []}
        | {"tools": [{**WEATHER, "tools": [{**LIST, "defer_loading": True}]}]},
    ]
    tools = [SEARCH, deferred]
    prompt = rendered(history, tools=tools)
    assert 'tool_search={"query": "q"}' in prompt
    assert "Found tools: mcp__weather__list" in prompt
    body = whole(says(calls("mcp__weather__list", {})), input=history, tools=tools)
    assert [tool.get("name", tool["type"]) for tool in body["tools"]] == [
        "tool_search",
        "mcp__weather",
    ]
    assert body["output"][0]["namespace"] == "mcp__weather"
    alone = whole(says("x"), tools=[deferred])
    assert [tool["name"] for tool in alone["tools"]] == ["found"]


HOSTED: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws_1", "status": "open", "action": {"type": "search"}},
    {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": {}},
    {"type": "local_shell_call_output", "id": "c", "output": "{}"},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
    {"type": "mcp_call", "id": "m", "name": "f", "server_label": "s", "arguments": "{}"},
    {"type": "agent_message", "author": "/root", "recipient": "/root/a", "content": []},
    {"type": "compaction", "encrypted_content": "x"},
    {"type": "tool_search_call", "status": "completed", "arguments": {"query": "q"}},
]


@pytest.mark.parametrize("item", HOSTED, ids=lambda item: item["type"])
def test_what_others_have_run_passes_over_and_is_told(item: dict[str, Any]) -> None:
    items = [user("x"), item, user("y")]
    assert rendered(items) == rendered([user("x"), user("y")])
    answer = answered(says("x"), input=items)
    told = f"input[1] of type {item['type']} is not in the prompt"
    assert answer.headers["x-manta-warning"] == told


def test_the_result_of_a_call_that_passes_over_does_too() -> None:
    """Codex answers a call of the shell as it answers that of a function."""
    ran = {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": {}}
    result = {"type": "function_call_output", "call_id": "c", "output": "a.txt"}
    items = [user("x"), ran, result, user("y")]
    assert rendered(items) == rendered([user("x"), user("y")])
    assert answered(says("x"), input=items).headers["x-manta-warning"] == (
        "input[1] of type local_shell_call is not in the prompt; "
        "input[2] of type function_call_output is not in the prompt"
    )


async def test_all_items_of_clients_come_again_from_the_store() -> None:
    text = calls("apply_patch", {"input": TEXT})
    async with talking(says(text), TOOLED) as (ask, engine):
        first = (await ask({"input": [user("x"), *HISTORY, *HOSTED], "tools": [PATCH]})).json()
        second = await ask({"input": "y", "previous_response_id": first["id"], "tools": [PATCH]})
        listed = await ask({}, f"/v1/responses/{second.json()['id']}/none")
        assert listed.status_code == 404
        prompt, kinds = (
            prompt_of(engine.requests[1], TOOLED),
            [entry["type"] for entry in first["output"]],
        )
    assert kinds == ["custom_tool_call"]
    assert prompt.count("apply_patch=") == 2


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def test_the_context_of_thoughts_is_all_turns_or_the_last() -> None:
    items = [user("x"), thought("old"), said("One."), user("y"), thought("new"), said("Two.")]
    for context, kept in (("auto", True), ("all_turns", True), ("current_turn", False)):
        prompt = rendered(items, THINKER, reasoning={"context": context})
        assert ("<think>old</think>" in prompt) == kept
        assert "<think>new</think>" in prompt
    body = whole(says("x"), THINKER, reasoning={"context": "all_turns"})
    assert body["reasoning"]["context"] == "all_turns"

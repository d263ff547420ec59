"""Tools in chat: the prompt, the grammar, and the calls in the answer."""

import json
from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.requests import GenerationRequest
from deployments.openai.fields.tool_arguments import INVALID, arguments_object, read_arguments
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import says
from tests.ingress.protocols.chats import plain
from tests.ingress.protocols.protocol import ROOMY
from tests.ingress.protocols.replies import CALL, SECOND, call
from tests.openai.chat.chatting import KNOWS_TOOLS, asked, asked_of, refused, streamed, whole
from tests.openai.serving import HELLO
from tests.text.constrained import may_say


def tool(name: str, **parameters: object) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = tool("weather", city={"type": "string"})
CLOCK = tool("clock")
TOOLS = [WEATHER, CLOCK]
NAMED = {"type": "function", "function": {"name": "clock"}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_calls_alone_leave_the_content_null() -> None:
    [choice] = whole(says(f"{CALL}\n{SECOND}"), tools=TOOLS)["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == (None, "tool_calls")
    names = [tool_call["function"]["name"] for tool_call in message["tool_calls"]]
    assert names == ["weather", "clock"]
    assert len({tool_call["id"] for tool_call in message["tool_calls"]}) == 2
    arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"city": 'K\u00f6ln "x"', "n": [1, 2]}


def test_a_call_begins_with_its_name_and_goes_on_with_its_arguments() -> None:
    chunks = streamed(says(CALL), tools=TOOLS)
    deltas = [part["delta"] for chunk in chunks for part in chunk["choices"]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"] == {"name": "weather", "arguments": ""}
    assert (calls[0]["index"], calls[0]["type"]) == (0, "function")
    assert all(tool_call.keys() == {"index", "function"} for tool_call in calls[1:])
    assert len(calls) > 3, "the arguments come as they are made"


def constrained(**fields: object) -> GenerationRequest:
    [request] = asked({"tools": TOOLS, **fields})
    return request


def grammar(**fields: object) -> str:
    return constrained(**fields).grammar


def strict(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "strict": True}}


def test_a_tool_that_may_not_be_called_constrains_nothing() -> None:
    odd = strict(tool("odd", a={"type": "array", "uniqueItems": True}))
    request = constrained(tools=[odd, CLOCK], tool_choice=allowed("auto", "clock"))
    assert may_say(request, call("clock", "{}"))
    assert not may_say(request, call("odd", '{"a": []}'))


def test_the_only_tool_that_is_allowed_is_the_only_one_that_can_be_called() -> None:
    made = grammar(tool_choice=allowed("required", "clock"))
    assert "clock" in made
    assert "weather" not in made


def test_tools_that_are_not_allowed_are_not_called() -> None:
    fields = {"tools": TOOLS, "tool_choice": allowed("auto", "clock")}
    [choice] = plain(whole(says(CALL), **fields))
    assert choice["message"]["content"] == CALL
    [choice] = plain(whole(says(call("clock", "{}")), **fields))
    assert choice["finish_reason"] == "tool_calls"


def test_results_come_back_with_what_called_for_them() -> None:
    message = whole(says(CALL), tools=TOOLS)["choices"][0]["message"]
    answer = {"role": "tool", "content": "12 degrees"}
    for tool_call in message["tool_calls"]:
        tool_call["index"] = 0  # as clients that gather a stream leave it
        answer["tool_call_id"] = tool_call["id"]
    [request] = asked({"tools": TOOLS, "messages": [*HELLO["messages"], message, answer]})
    assert request.prompt_ids


def called(call_id: str, name: str) -> dict[str, object]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "tool_calls": [call]}


@pytest.mark.parametrize("given", [{}, {"name": None}, {"name": "other"}])
def test_a_result_has_the_name_of_its_call(given: dict[str, object]) -> None:
    function = {"name": "clock", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "noon", "tool_call_id": "a", **given},
    ]
    template = KNOWS_TOOLS.replace("{{ m.content }}", "{{ m.name }}: {{ m.content }}")
    model = replace(ROOMY, chat_template=template, dialect="hermes")
    [request] = asked_of(model, tools=TOOLS, messages=messages)
    prompt = TextTokenizer(model).decode(request.prompt_ids)
    assert f"{given.get('name') or 'clock'}: noon" in prompt


NOTHING: list[dict[str, object]] = [{}, {"content": None}, {"content": []}, {"content": ""}]


@pytest.mark.parametrize("said", NOTHING)
def test_tools_and_assistants_may_have_nothing_to_say(said: dict[str, object]) -> None:
    answer = {"role": "tool", "tool_call_id": "a", **said}
    silent = [
        [{**called("a", "clock"), **said}, answer],
        [{"role": "assistant", **said}],
        [{"role": "assistant", "tool_calls": [], **said}],
    ]
    for messages in silent:
        [request] = asked_of(ROOMY, messages=[*HELLO["messages"], *messages])
        assert "None" not in TextTokenizer(ROOMY).decode(request.prompt_ids)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [CLOCK, WEATHER, CLOCK]}, "tools[2].function.name"),
        ({"tools": [WEATHER], "tool_choice": NAMED}, "tool_choice.function.name"),
        (
            {"tools": [WEATHER], "tool_choice": allowed("auto", "clock")},
            "tool_choice.allowed_tools.tools",
        ),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "custom"}}, "tool_choice.custom"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice.function"),
    ],
)
def test_a_wrong_tool_or_choice_is_named(fields: dict[str, object], param: str) -> None:
    assert refused(**fields)["param"] == param


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": "\\ud83d"}', {"a": "?"}),
        ('{"a": 1e999, "b": [NaN]}', {"a": "1e999", "b": ["NaN"]}),
        ('{"a": 0.5}', {"a": 0.5}),
    ],
)
def test_what_a_model_wrote_can_be_given_back(written: str, read: object) -> None:
    assert read_arguments(written) == read


@pytest.mark.parametrize("written", ["[" * 100 + "]" * 100, "{", "", "9" * 5000, "[" * 100_000])
def test_what_is_no_json_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting|digits"):
        read_arguments(written)


BROKEN = '{"city": "x"\n</parametr>'


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("", {}),
        ("null", {}),
        ('{"a": 1}', {"a": 1}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        (json.dumps('{"a": 1}'), {"a": 1}),
        (BROKEN, {INVALID: BROKEN}),
        (json.dumps(BROKEN), {INVALID: BROKEN}),
        ("[1]", {INVALID: "[1]"}),
        ('"x"', {INVALID: "x"}),
        ("[" * 100_000, {INVALID: "[" * 100_000}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_arguments_come_back_as_an_object_whatever_they_were(written: str, given: object) -> None:
    assert arguments_object(written) == given


GARBLED = """<tool_call>
<function=forecast>
<parameter=days>
2
</parametr>
</function>
</tool_call>"""
FORECAST = tool("forecast", days={"type": "integer"})


@pytest.mark.parametrize("quoted", [False, True])
def test_a_call_that_the_model_garbled_can_be_answered(quoted: bool) -> None:
    model = replace(ROOMY, dialect="qwen3_coder", chat_template=KNOWS_TOOLS)
    message = whole(says(GARBLED), model, tools=[FORECAST])["choices"][0]["message"]
    [made] = message["tool_calls"]
    if quoted:
        made["function"]["arguments"] = json.dumps(made["function"]["arguments"])
    answer = {"role": "tool", "content": "no such city", "tool_call_id": made["id"]}
    [request] = asked_of(model, tools=[FORECAST], messages=[*HELLO["messages"], message, answer])
    assert "</parametr>" in TextTokenizer(model).decode(request.prompt_ids)

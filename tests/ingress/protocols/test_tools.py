"""Tools in every protocol that has them: what a model may say, and what is a call."""

from typing import Any

import pytest

from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import says
from tests.ingress.protocols.every import EACH, EACH_CALLER
from tests.ingress.protocols.messages import MESSAGES, thinker
from tests.ingress.protocols.protocol import ROOM, Caller, Protocol
from tests.ingress.protocols.replies import SCHEMA, call, tools
from tests.text.cards import card
from tests.text.constrained import may_say

ROME, CLOCK = call(arguments='{"city": "Rome"}'), call("clock", "{}")
TWICE = [f"{ROME}\n{ROME}", f"{ROME}{ROME}", f"{ROME} and {ROME}"]
FREE = ["a < b", "", "Hm.", "<think>\nHm.\n</think>\n\nSo."]
MODEL = card(context_length=ROOM)  # its template knows no tools: the prompt has them all the same
UNIQUE = {
    "type": "object",
    "properties": {"a": {"type": "array", "uniqueItems": True}},
    "required": ["a"],
}
SCHEMAS = {"chat": "function.parameters", "responses": "parameters", "messages": "input_schema"}


def asked(
    protocol: Caller, choice: str = "", parallel: bool = True, **fields: Any
) -> GenerationRequest:
    chosen = protocol.choice(choice, parallel) if choice else {}
    [request] = protocol.asked(MODEL, **{**tools(protocol), **chosen, **fields})
    return request


@EACH_CALLER
def test_the_model_is_free_unless_it_must_call(protocol: Caller) -> None:
    free, required = asked(protocol), asked(protocol, "required")
    assert free.triggers is not None
    assert asked(protocol, "auto").triggers == free.triggers
    assert required.triggers is None
    for text in (*FREE, ROME, f"So:\n{CLOCK}", TWICE[0]):
        assert may_say(free, text), text
    for text in (ROME, CLOCK, TWICE[0]):
        assert may_say(required, text), text
    for text in FREE:
        assert not may_say(required, text), text


@EACH_CALLER
def test_calls_of_a_strict_tool_fit_and_nothing_else_is_forbidden(protocol: Caller) -> None:
    request = asked(protocol, tools=[protocol.tool("weather", SCHEMA, strict=True)])
    for text in (*FREE, f"So:\n{ROME}", TWICE[0]):
        assert may_say(request, text), text
    for arguments in ('{"city": 5}', "{}", '{"town": "Rome"}'):
        assert not may_say(request, f"So:\n{call(arguments=arguments)}")
        assert not may_say(request, f"<think>\n</think>{call(arguments=arguments)}")


@EACH_CALLER
def test_without_parallel_calls_there_is_one_at_most(protocol: Caller) -> None:
    request = asked(protocol, "auto", parallel=False)
    for text in (*FREE, ROME, f"Let me see.\n{ROME}"):
        assert may_say(request, text), text
    for text in TWICE:
        assert not may_say(request, text), text
    one = asked(protocol, "required", parallel=False)
    assert may_say(one, ROME)
    assert not may_say(one, TWICE[0])


@EACH_CALLER
@pytest.mark.parametrize("parallel", [True, False])
def test_a_named_tool_is_the_only_one_to_call(protocol: Caller, parallel: bool) -> None:
    request = asked(protocol, "clock", parallel)
    assert may_say(request, CLOCK)
    for text in (ROME, "Hm."):
        assert not may_say(request, text), text
    assert may_say(request, f"{CLOCK}\n{CLOCK}") == (parallel and protocol is MESSAGES)
    assert "weather" not in request.grammar


@EACH_CALLER
def test_without_tools_nothing_is_a_call(protocol: Caller) -> None:
    [plain] = protocol.asked(thinker(ROOM))
    off: list[dict[str, Any]] = [{**tools(protocol), **protocol.choice("none")}, {"tools": []}, {}]
    for fields in off:
        said = protocol.says(says(ROME), MODEL, **fields)
        assert (said.text, said.ending) == (ROME, "end")
        [request] = protocol.asked(thinker(ROOM), **fields)
        assert request.prompt_ids == plain.prompt_ids
        assert (request.grammar, request.triggers) == ("", None)


@EACH_CALLER
def test_a_schema_that_can_not_be_followed_is_refused_where_it_must_be(protocol: Caller) -> None:
    odd, clock = protocol.tool("odd", UNIQUE), protocol.tool("clock", {"type": "object"})
    request = asked(protocol, "auto", parallel=False, tools=[odd])
    assert may_say(request, call("odd", '{"a": [1, 1]}'))
    assert not may_say(request, call("odd", '{"b": 1}'))
    strict = protocol.tool("odd", UNIQUE, strict=True)
    error = protocol.refused(tools=[clock, strict])
    assert f"`tools[1].{SCHEMAS[protocol.name]}`" in error["message"]
    forced = asked(protocol, "required", tools=[odd, clock])
    for text in (call("odd", '{"a": [1, 1]}'), CLOCK):
        assert may_say(forced, text), text
    assert not may_say(forced, "Hm.")


@EACH_CALLER
def test_a_model_whose_template_knows_no_tools_can_call_them(protocol: Caller) -> None:
    assert protocol.says(says(ROME), MODEL, **tools(protocol)).ending == "call"
    prompt = TextTokenizer(MODEL).decode(asked(protocol).prompt_ids)
    assert all(text in prompt for text in ('"weather"', '"city"', '"clock"'))


@EACH
def test_an_answer_can_be_held_to_a_schema(protocol: Protocol) -> None:
    [request] = protocol.asked(MODEL, **protocol.form(SCHEMA))
    assert may_say(request, '{"city": "Rome"}')
    for text in ('{"city": 5}', "{}", "Hm."):
        assert not may_say(request, text), text
    said = protocol.says(says('{"city": "Rome"}'), thinker(ROOM), **protocol.form(SCHEMA))
    assert said.text == '{"city": "Rome"}'


@EACH_CALLER
def test_what_fits_a_schema_may_be_a_call_as_well(protocol: Caller) -> None:
    request = asked(protocol, **protocol.form(SCHEMA))
    for text in ('{"city": "Rome"}', ROME):
        assert may_say(request, text), text
    assert not may_say(request, "Hm.")

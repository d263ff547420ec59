"""Everything wrong in a request is a 4xx that names it, in Anthropic's envelope."""

import httpx
import pytest

from deployments.anthropic.thinking_signatures import MAX_THINKING_BYTES, sign
from deployments.contract.errors import ErrorKind, RequestError
from tests.anthropic.serving import HELLO, MESSAGES, WEATHER, answer
from tests.ingress.engines import fails, says
from tests.ingress.protocols.messages import COUNT, USER, thinker
from tests.ingress.protocols.protocol import named_events
from tests.malformed.cases import message_of
from tests.text.cards import card

TEXT = {"type": "text", "text": "x"}
CALL = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
THOUGHT = {"type": "thinking", "thinking": "x", "signature": "s"}
FULL = sign("a" * MAX_THINKING_BYTES, shown=False)  # all that a request may hold
FULLER = sign("a" * (MAX_THINKING_BYTES + 1), shown=False)
PLAIN = {"type": "text", "media_type": "text/plain", "data": "x"}
FOUND = {"type": "search_result", "source": "a", "title": "b", "content": [TEXT]}
LATER = {"defer_loading": True}
OTHER = {**WEATHER, "name": "other"}
NAMED = {"type": "tool", "name": "weather"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def user(*blocks: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def document(source: object, **fields: object) -> dict[str, object]:
    return user({"type": "document", "source": source, **fields})


def assistant(content: object, *more: object) -> dict[str, object]:
    return {"messages": [USER, {"role": "assistant", "content": content}, *more]}


def results(*blocks: object) -> dict[str, object]:
    return assistant([CALL], {"role": "user", "content": list(blocks)})


def tool(**fields: object) -> dict[str, object]:
    return {"tools": [{**WEATHER, **fields}]}


def choice(**fields: object) -> dict[str, object]:
    return {"tools": [WEATHER], "tool_choice": fields}


def thinking(**fields: object) -> dict[str, object]:
    return {"thinking": fields, "max_tokens": 4000}


SHARED: list[tuple[dict[str, object], str]] = [
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    (user({**TEXT, "foo": 1}), "messages[0].content[0].foo"),
    (user({**TEXT, "citations": [{}]}), "messages[0].content[0].citations"),
    (user({**TEXT, "cache_control": {}}), "messages[0].content[0].cache_control.type"),
    (
        user({**TEXT, "cache_control": {"type": "ephemeral", "ttl": "2h"}}),
        "messages[0].content[0].cache_control.ttl",
    ),
    (user(IMAGE), "image"),
    (user(TEXT, {"type": "document", "source": {}}), "messages[0].content[1]"),
    *(
        (document({"type": kind}), "messages[0].content[0].source")
        for kind in ("base64", "url", "file")
    ),
    (document({**PLAIN, "media_type": "text/html"}), "messages[0].content[0].source.media_type"),
    (document({"type": "text"}), "messages[0].content[0].source.media_type"),
    (
        document({"type": "content", "content": [IMAGE]}),
        "messages[0].content[0].source.content[0]",
    ),
    (document(PLAIN, citations={"enabled": True}), "messages[0].content[0].citations.enabled"),
    (user({"type": "search_result"}), "messages[0].content[0].source"),
    (user({**FOUND, "content": [IMAGE]}), "messages[0].content[0].content[0]"),
    (user({**FOUND, "citations": {"enabled": True}}), "messages[0].content[0].citations.enabled"),
    (assistant([FOUND]), "messages[1].content[0].type"),
    ({"system": [FOUND]}, "system[0].type"),
    (user({"type": "container_upload", "file_id": "x"}), "container_upload"),
    (user(CALL), "messages[0].content[0].type"),
    (user(RESULT), "messages[0].content[0].tool_use_id"),
    (results({**RESULT, "content": 5}), "messages[2].content[0].content"),
    (results({**RESULT, "is_error": "yes"}), "messages[2].content[0].is_error"),
    (results({**RESULT, "tool_use_id": "b"}), "messages[2].content[0].tool_use_id"),
    (results(RESULT, RESULT), "messages[2].content[1].tool_use_id"),
    (results(TEXT), "messages[1]"),
    (results({"type": "tool_result"}), "messages[2].content[0].tool_use_id"),
    (assistant([CALL]), "messages[1]"),
    (assistant([CALL, CALL]), "messages[1]"),
    (assistant([{**CALL, "input": "{}"}]), "messages[1].content[0].input"),
    (assistant([{**CALL, "input": None}]), "messages[1].content[0].input"),
    (assistant([{**CALL, "id": ""}]), "messages[1].content[0].id"),
    (assistant([{**CALL, "caller": {"type": "code"}}]), "messages[1].content[0].caller.type"),
    (assistant([RESULT]), "messages[1].content[0].type"),
    (assistant([{"type": "redacted_thinking"}]), "messages[1].content[0].data"),
    (user({"type": "redacted_thinking", "data": "x"}), "messages[0].content[0].type"),
    (assistant([{"type": "server_tool_use"}]), "messages[1].content[0].id"),
    (assistant([{"type": "web_search_tool_result"}]), "messages[1].content[0].tool_use_id"),
    (user({"type": "server_tool_use", "id": "s", "name": "n"}), "messages[0].content[0].type"),
    (assistant([{"type": "thinking", "thinking": "x"}]), "messages[1].content[0].signature"),
    (
        assistant([{**THOUGHT, "thinking": "", "signature": "manta-held-x"}, TEXT], USER),
        "messages[1].content[0].signature",
    ),
    (
        assistant([{**THOUGHT, "thinking": "", "signature": FULL}] * 2, USER),
        "messages[1].content[1].signature",
    ),
    (
        assistant([{**THOUGHT, "thinking": "", "signature": FULLER}], USER),
        "messages[1].content[0].signature",
    ),
    (assistant([THOUGHT]), "messages[1]"),
    (assistant("x "), "messages[1]"),
    (assistant([{"type": "text", "text": "x\n"}]), "messages[1]"),
    ({**assistant("x"), "output_format": SCHEMA}, "output_format"),
    ({**assistant("x"), "output_config": {"format": SCHEMA}}, "output_config.format"),
    ({"messages": [{"role": "system", "content": []}, USER]}, "messages[0].content"),
    (
        {"messages": [{"role": "system", "content": "x", "clear_at": "next_user_message"}, USER]},
        "messages[0].clear_at",
    ),
    (
        thinking(type="adaptive", block_binding={"prefix_mismatch_behavior": "error"}),
        "thinking.block_binding.prefix_mismatch_behavior",
    ),
    ({"messages": [{"role": "system", "content": [IMAGE]}, USER]}, "messages[0].content[0]"),
    ({"system": [IMAGE]}, "system[0]"),
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"tools": [{**WEATHER, "name": f"f{n}"} for n in range(513)]}, "tools"),
    (tool(name=None), "tools[0].name"),
    (tool(name="a b"), "tools[0].name"),
    (tool(name=""), "tools[0].name"),
    (tool(name="x" * 129), "tools[0].name"),
    (tool(description=5), "tools[0].description"),
    (tool(input_schema=None), "tools[0].input_schema"),
    (tool(input_schema=[]), "tools[0].input_schema"),
    (tool(input_schema={}), "tools[0].input_schema"),
    (tool(input_schema={"type": "string"}), "tools[0].input_schema"),
    (tool(type="bash_20250124"), "bash_20250124"),
    (tool(type=5), "tools[0].type"),
    (tool(strict="yes"), "tools[0].strict"),
    (
        {"tools": [{**OTHER, **LATER}, {**WEATHER, "strict": True, "input_schema": UNIQUE}]},
        "tools[1].input_schema",
    ),
    (tool(defer_loading=1), "tools[0].defer_loading"),
    (tool(allowed_callers=["code_execution_20250825"]), "tools[0].allowed_callers"),
    (tool(input_examples=[5]), "tools[0].input_examples"),
    (tool(parameters={}), "tools[0].parameters"),
    ({"tool_choice": {"type": "any"}, "tools": []}, "tool_choice"),
    (choice(), "tool_choice.type"),
    (choice(type="required"), "tool_choice.type"),
    (choice(type="tool"), "tool_choice.name"),
    (choice(type="tool", name="stocks"), "tool_choice.name"),
    ({**tool(**LATER), "tool_choice": {"type": "any"}}, "tool_choice"),
    (
        {"tools": [{**WEATHER, **LATER}, OTHER], "tool_choice": NAMED},
        "tool_choice.name",
    ),
    (choice(type="auto", disable_parallel_tool_use=1), "tool_choice.disable_parallel_tool_use"),
    ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice"),
    (thinking(type="enabled", budget_tokens=1023), "thinking.budget_tokens"),
    (thinking(type="enabled", budget_tokens="2000"), "thinking.budget_tokens"),
    (thinking(type="enabled", budget_tokens=2000, display="all"), "thinking.display"),
    (thinking(type="disabled", budget_tokens=2000), "thinking.budget_tokens"),
    ({**thinking(type="enabled", budget_tokens=2000), **assistant("x")}, "thinking"),
    ({"output_format": SCHEMA, "output_config": {"format": SCHEMA}}, "output_format"),
]
WRONG = [
    (
        MESSAGES,
        {"max_tokens": 2000, **thinking(type="enabled", budget_tokens=4000)},
        "budget_tokens",
    ),
    *((MESSAGES, fields, named) for fields, named in SHARED),
    *(
        (COUNT, {k: v for k, v in fields.items() if k != "max_tokens"}, named)
        for fields, named in SHARED
    ),
]


def refusal(response: httpx.Response, status: int, kind: str = "invalid_request_error") -> str:
    """The message of an error, which has all that every error must have."""
    assert response.status_code == status, response.text
    assert response.json()["error"]["type"] == kind
    return message_of("anthropic", response)


@pytest.mark.parametrize(("path", "fields", "named"), WRONG)
def test_what_is_wrong_is_named(path: str, fields: dict[str, object], named: str) -> None:
    base = HELLO if path == MESSAGES else {"model": "tiny", "messages": [USER]}
    assert named in refusal(answer(says("x"), {**base, **fields}, path=path), 400)


@pytest.mark.parametrize("field", ["model", "messages", "max_tokens"])
def test_what_is_missing_is_named(field: str) -> None:
    body = {name: value for name, value in HELLO.items() if name != field}
    assert refusal(answer(says("x"), body), 400) == f"`{field}` is required"


def test_a_model_that_does_not_think_keeps_any_budget_of_thoughts() -> None:
    """Agents ask every model of some names to think, and Anthropic's word is a limit."""
    for asked in ({"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive"}):
        response = answer(
            says("x"), {**HELLO, **thinking(**asked)}, model=card(context_length=2048)
        )
        assert response.status_code == 200, response.text
        assert [block["type"] for block in response.json()["content"]] == ["text"]


def test_a_prompt_that_is_too_long_is_refused_in_the_words_that_agents_parse() -> None:
    body = {**HELLO, "messages": [{"role": "user", "content": "x" * 200}]}
    message = refusal(answer(says("x"), body, model=thinker(64)), 400)
    assert message.startswith("prompt is too long: ")
    assert message.endswith(" tokens > 63 maximum")


def test_a_path_that_is_not_there_is_told_so() -> None:
    response = answer(says("x"), HELLO, path=f"{MESSAGES}/batches")
    refusal(response, 404, "not_found_error")


def test_a_request_keeps_its_own_id_and_gets_one_otherwise() -> None:
    mine = answer(says("x"), HELLO, headers={"x-request-id": "mine"})
    assert mine.headers["request-id"] == mine.headers["x-request-id"] == "mine"
    fresh = answer(says("x"), HELLO)
    assert fresh.headers["request-id"] == fresh.headers["x-request-id"] != ""
    stream = answer(
        fails(RequestError(ErrorKind.UNAVAILABLE, "no"), after="x"), {**HELLO, "stream": True}
    )
    assert named_events(stream)[-1]["request_id"] == stream.headers["request-id"]

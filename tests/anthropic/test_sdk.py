"""The real client, as its users write it, and what an agent of theirs sends."""

import asyncio
import json
from typing import Any

import anthropic
import pytest

from deployments.contract.errors import ErrorKind, RequestError
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import HELLO, WEATHER, asked, sdk, served
from tests.ingress.engines import Script, ScriptedEngine, fails, says
from tests.ingress.protocols.messages import USER, thinker
from tests.ingress.protocols.protocol import named_events
from tests.openai.serving import http

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
AGENT: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 32000,
    "temperature": 1,
    "stream": True,
    "metadata": {"user_id": "user_" + "0f" * 32 + "_account__session_" + "ab" * 16},
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "context_management": {
        "edits": [
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
            {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 5}},
        ]
    },
    "output_config": {"effort": "high"},
    "diagnostics": {"previous_message_id": None},
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.37; cch=fa690;"},
        {
            "type": "text",
            "text": "You are an agent.",
            "cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"},
        },
    ],
    "tools": [
        {**WEATHER, "cache_control": {"type": "ephemeral"}},
        {**WEATHER, "name": "Bash", "eager_input_streaming": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
            ],
        }
    ],
}
AGENT_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
    "x-app": "cli",
}


def client_of(script: Script) -> Any:
    return sdk(served(ScriptedEngine(script, thinker())))


async def test_what_an_agent_sends_is_served() -> None:
    engine = ScriptedEngine(says("Hm.</think>" + CALL), thinker())
    async with http(served(engine)) as client:
        path = "/v1/messages?beta=true"
        response = await client.post(path, json=AGENT, headers=AGENT_HEADERS)
    [request] = engine.requests
    assert response.status_code == 200, response.text
    assert '"stop_reason":"tool_use"' in response.text
    assert request.thinking is not None
    assert request.thinking.tokens == 31999
    assert request.sampling.temperature == 1


async def test_what_an_agent_sends_back_has_the_thoughts_that_it_got() -> None:
    engine = ScriptedEngine(says(f"Hm, Rome.</think>So: {CALL}"), thinker())
    async with http(served(engine)) as client:
        first = await client.post("/v1/messages", json=AGENT, headers=AGENT_HEADERS)
        blocks = blocks_of(named_events(first))
        assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
        result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": "sunny"}
        history = [
            *AGENT["messages"],
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result]},
        ]
        body = {**AGENT, "messages": history}
        second = await client.post("/v1/messages", json=body, headers=AGENT_HEADERS)
    assert second.status_code == 200, second.text
    prompt = TextTokenizer(thinker()).decode(engine.requests[1].prompt_ids)
    assert "<think>Hm, Rome.</think>So:" in prompt
    assert "sunny[weather#" in prompt


def blocks_of(events: list[Any]) -> list[Any]:
    """The blocks that the events add up to, as agents keep them."""
    fields = {"thinking_delta": "thinking", "signature_delta": "signature", "text_delta": "text"}
    blocks: list[Any] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            field = fields.get(delta["type"])
            if field is None:
                blocks[-1]["json"] += delta["partial_json"]
            else:
                blocks[-1][field] += delta[field]
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    return blocks


def test_what_differs_between_an_agents_requests_for_its_bill_does_not_change_the_prompt() -> None:
    first, second = (
        asked({"system": [{"type": "text", "text": f"x-anthropic-billing-header: cch={n};"}]})
        for n in range(2)
    )
    assert first.prompt_ids == second.prompt_ids


async def test_an_answer_goes_back_as_it_came() -> None:
    engine = ScriptedEngine(says(f"<think>\nHm\n</think>\n\nSo: {CALL}"), thinker())
    body: Any = {**HELLO, "tools": [WEATHER], "thinking": {"type": "adaptive"}}
    async with sdk(served(engine)) as client:
        unary = await client.messages.create(**body)
        async with client.messages.stream(**body) as stream:
            final = await stream.get_final_message()
        answers: list[Any] = [unary, final]
        for message in answers:
            result = {"type": "tool_result", "tool_use_id": message.content[-1].id}
            for content in (message.content, [block.to_dict() for block in message.content]):
                history = [
                    USER,
                    {"role": "assistant", "content": content},
                    {"role": "user", "content": [{**result, "content": "sunny"}]},
                ]
                again = await client.messages.create(**{**body, "messages": history})
                assert again.stop_reason == "tool_use"


async def test_the_sdk_counts_tokens() -> None:
    async with client_of(says("x")) as client:
        body: Any = {**HELLO, "tools": [WEATHER], "system": "Be brief."}
        message = await client.messages.create(**body)
        del body["max_tokens"]
        counted = await client.messages.count_tokens(**body)
    usage = message.usage
    used = usage.input_tokens + usage.cache_read_input_tokens
    assert counted.input_tokens == used > 0


async def test_a_tool_runner_goes_on_without_threads() -> None:
    """It asks for one that the server keeps, and takes the refusal for a reason not to."""

    @anthropic.beta_async_tool
    async def weather(city: str) -> str:
        """Tells the weather of a city."""
        return f"{city} is sunny"

    async with client_of(says(CALL)) as client:
        runner = client.beta.messages.tool_runner(
            model="tiny", max_tokens=400, messages=[USER], tools=[weather], max_iterations=2
        )
        messages = [message async for message in runner]
    assert [message.stop_reason for message in messages] == ["tool_use", "tool_use"]


def test_an_answer_in_a_schema_is_parsed_by_the_sdk() -> None:
    async def asks() -> Any:
        async with client_of(says('{"city": "Rome"}')) as client:
            output: Any = {"format": {"type": "json_schema", "schema": WEATHER["input_schema"]}}
            return await client.messages.create(**HELLO, output_config=output)

    assert asyncio.run(asks()).content[0].text == '{"city": "Rome"}'


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        (ErrorKind.INVALID_REQUEST, anthropic.BadRequestError),
        (ErrorKind.MODEL_NOT_FOUND, anthropic.NotFoundError),
        (ErrorKind.AUTHENTICATION, anthropic.AuthenticationError),
        (ErrorKind.OVERLOADED, anthropic.InternalServerError),
        (ErrorKind.INTERNAL, anthropic.InternalServerError),
        (ErrorKind.GENERATION_TIMEOUT, anthropic.InternalServerError),
    ],
)
async def test_errors_are_the_sdks_own(
    kind: ErrorKind, raised: type[anthropic.APIStatusError]
) -> None:
    async with client_of(fails(RequestError(kind, "no"))) as client:
        with pytest.raises(raised) as refusal:
            await client.messages.create(**HELLO)
        assert refusal.value.request_id
        body: Any = refusal.value.body
        assert body["request_id"] == refusal.value.request_id


async def test_a_failing_stream_raises_in_the_sdk() -> None:
    overloaded = fails(RequestError(ErrorKind.OVERLOADED, "later"), after="Hel")
    async with client_of(overloaded) as client:
        with pytest.raises(anthropic.APIStatusError, match="later") as refusal:
            async with client.messages.stream(**HELLO) as stream:
                await stream.get_final_message()
    assert refusal.value.type == "overloaded_error"


async def test_an_unknown_model_is_not_found() -> None:
    async with client_of(says("x")) as client:
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(**{**HELLO, "model": "claude"})


async def test_the_sdks_key_opens() -> None:
    guarded = served(ScriptedEngine(says("x"), thinker()), api_keys=("secret",))
    async with sdk(guarded, "wrong") as client:
        with pytest.raises(anthropic.AuthenticationError) as refusal:
            await client.messages.create(**HELLO)
        assert refusal.value.type == "authentication_error"
        assert refusal.value.request_id
    async with sdk(guarded, "secret") as client:
        assert (await client.messages.create(**HELLO)).stop_reason == "end_turn"

"""The real client, as its users write it."""

from typing import Any

import pytest
from openai import APIStatusError, BadRequestError, RateLimitError, pydantic_function_tool
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from deployments.contract.errors import ErrorKind, RequestError
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine, fails, says
from tests.ingress.protocols.protocol import ROOMY
from tests.openai.serving import sdk, served

MESSAGES = [{"role": "user", "content": "Hello"}]


async def test_the_sdk_reads_answers_and_streams() -> None:
    async with sdk(served(ScriptedEngine(says("Hello world")))) as client:
        answer = await client.chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
        assert answer.choices[0].message.content == "Hello world"
        message = answer.choices[0].message.model_dump()
        again = await client.chat.completions.create(
            model="tiny",
            messages=[*MESSAGES, message, *MESSAGES],  # type: ignore[list-item]
        )
        assert again.choices[0].finish_reason == "stop"
        completion = await client.completions.create(model="tiny", prompt="x")
        assert completion.choices[0].text == "Hello world"


async def test_the_sdks_own_accumulator_agrees() -> None:
    async with sdk(served(ScriptedEngine(says("Hello world")))) as client:
        manager = client.chat.completions.stream(
            model="tiny",
            messages=MESSAGES,  # type: ignore[arg-type]
            logprobs=True,
            stream_options={"include_usage": True},
        )
        async with manager as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Hello world"
    assert final.usage is not None
    assert final.usage.completion_tokens > 1


async def test_errors_are_the_sdks_own() -> None:
    overloaded = fails(RequestError(ErrorKind.OVERLOADED, "later"))
    async with sdk(served(ScriptedEngine(overloaded))) as client:
        with pytest.raises(RateLimitError):
            await client.chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
        with pytest.raises(BadRequestError) as wrong:
            await client.completions.create(model="tiny", prompt="x", temperature=5)
    assert wrong.value.param == "temperature"


async def test_an_unsupported_request_is_not_retried() -> None:
    answering, asked = served(ScriptedEngine(says("x"))), 0

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal asked
        asked += 1
        await answering(scope, receive, send)

    async with sdk(counting) as client:
        patient = client.with_options(max_retries=2)
        with pytest.raises(APIStatusError) as wrong:
            await patient.moderations.create(input="x")
    assert wrong.value.status_code == 501
    assert asked == 1


class Weather(BaseModel):
    """The weather in a city."""

    city: str


CALL = '<tool_call>\n{"name": "Weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOL: Any = pydantic_function_tool(Weather)


async def test_the_sdk_parses_an_answer_in_the_form_of_a_model() -> None:
    engine = ScriptedEngine(says('{"city": "Oslo"}'))
    async with sdk(served(engine)) as client:
        answer = await client.chat.completions.parse(
            model="tiny",
            messages=MESSAGES,  # type: ignore[arg-type]
            response_format=Weather,
        )
    assert answer.choices[0].message.parsed == Weather(city="Oslo")
    assert '"city"' in engine.requests[0].grammar


async def test_the_sdk_parses_calls_and_sends_them_back() -> None:
    engine = ScriptedEngine(says(CALL), ROOMY)
    async with sdk(served(engine)) as client:
        messages: list[Any] = list(MESSAGES)
        answer = await client.chat.completions.parse(model="tiny", messages=messages, tools=[TOOL])
        message = answer.choices[0].message
        assert message.tool_calls
        assert message.tool_calls[0].function.parsed_arguments == Weather(city="Oslo")
        call_id = message.tool_calls[0].id
        messages += [message, {"role": "tool", "tool_call_id": call_id, "content": "12"}]
        again = await client.chat.completions.create(
            model="tiny", messages=messages, tools=[TOOL], tool_choice="none"
        )
    assert again.choices[0].message.content == CALL
    prompt = TextTokenizer(ROOMY).decode(engine.requests[1].prompt_ids)
    assert '{"city": "Oslo"}' in prompt


async def test_the_sdks_own_accumulator_gathers_calls() -> None:
    async with sdk(served(ScriptedEngine(says(CALL), ROOMY))) as client:
        manager = client.chat.completions.stream(
            model="tiny",
            messages=MESSAGES,  # type: ignore[arg-type]
            tools=[TOOL],
        )
        async with manager as stream:
            kinds = [str(event.type) async for event in stream]
            final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert kinds.count("tool_calls.function.arguments.done") == 1
    [choice] = final.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    assert choice.message.tool_calls[0].function.parsed_arguments == Weather(city="Oslo")

"""The real client on responses, as its users write it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pydantic
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, pydantic_function_tool
from openai.types.responses import FunctionToolParam, ResponseTextDeltaEvent

from tests.ingress.engines import ScriptedEngine, says
from tests.openai.responses.responding import CALL, ROOMY, WEATHER
from tests.openai.serving import sdk, served

TOOL: Any = WEATHER


class Place(pydantic.BaseModel):
    city: str


def visit(script: Any, asks: Callable[[AsyncOpenAI], Awaitable[None]]) -> ScriptedEngine:
    engine = ScriptedEngine(script, ROOMY)

    async def run() -> None:
        async with sdk(served(engine)) as client:
            await asks(client)

    asyncio.run(run())
    return engine


def test_the_sdk_makes_asks_for_and_deletes() -> None:
    async def asks(client: AsyncOpenAI) -> None:
        made = await client.responses.create(model="tiny", input="Hello", instructions="Be brief.")
        assert made.output_text == "Hello world"
        assert (await client.responses.retrieve(made.id)).output_text == "Hello world"
        items = [item async for item in client.responses.input_items.list(made.id, limit=1)]
        assert [item.type for item in items] == ["message"]
        with pytest.raises(BadRequestError):
            await client.responses.cancel(made.id)
        await client.responses.delete(made.id)
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id)

    visit(says("Hello world"), asks)


def test_the_sdks_own_accumulator_agrees() -> None:
    async def asks(client: AsyncOpenAI) -> None:
        manager = client.responses.stream(model="tiny", input="Hello", tools=[TOOL])
        heard = ""
        async with manager as stream:
            async for event in stream:
                if isinstance(event, ResponseTextDeltaEvent):
                    heard += event.delta
            final = await stream.get_final_response()
        assert final.output_text == heard
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]

    visit(says(f"<think>Hm.</think>Let me see. {CALL}"), asks)


def test_the_sdk_parses_what_it_asked_the_form_of() -> None:
    async def asks(client: AsyncOpenAI) -> None:
        parsed = await client.responses.parse(model="tiny", input="Where?", text_format=Place)
        assert parsed.output_parsed == Place(city="Bonn")
        async with client.responses.stream(
            model="tiny", input="Where?", text_format=Place
        ) as stream:
            assert (await stream.get_final_response()).output_parsed == Place(city="Bonn")

    engine = visit(says('{"city": "Bonn"}'), asks)
    assert all("city" in request.grammar for request in engine.requests)


def test_the_sdks_own_items_come_back() -> None:
    """They come as objects and as all of their fields, with what the SDK parsed in them."""

    async def asks(client: AsyncOpenAI) -> None:
        function = pydantic_function_tool(Place, name="weather")["function"]
        tool: Any = {"type": "function", **function}
        made = await client.responses.parse(model="tiny", input="Hello", tools=[tool])
        [call] = [item for item in made.output if item.type == "function_call"]
        assert json.loads(call.arguments) == {"city": "K\u00f6ln"}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        for output in (made.output, [item.model_dump() for item in made.output]):
            history: Any = [*output, result]
            again = await client.responses.create(model="tiny", input=history, tools=[tool])
            assert again.status == "completed"

    engine = visit(says(f"Let me see. {CALL}"), asks)
    _, objects, dumped = engine.requests
    assert objects.prompt_ids == dumped.prompt_ids


def test_the_sdk_counts() -> None:
    async def asks(client: AsyncOpenAI) -> None:
        tools: list[FunctionToolParam] = [TOOL]
        counted = await client.responses.input_tokens.count(
            model="tiny", input="Hello", tools=tools, instructions="Be brief."
        )
        made = await client.responses.create(
            model="tiny", input="Hello", tools=tools, instructions="Be brief."
        )
        assert made.usage is not None
        assert counted.input_tokens == made.usage.input_tokens

    visit(says("x"), asks)

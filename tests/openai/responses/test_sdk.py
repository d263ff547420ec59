"""The real client on responses, as its users write it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def visiting(script: Any) -> AsyncIterator[tuple[AsyncOpenAI, ScriptedEngine]]:
    engine = ScriptedEngine(script, ROOMY)
    async with sdk(served(engine)) as client:
        yield client, engine


async def test_the_sdk_makes_asks_for_and_deletes() -> None:
    async with visiting(says("Hello world")) as (client, _):
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


async def test_the_sdks_own_accumulator_agrees() -> None:
    async with visiting(says(f"<think>Hm.</think>Let me see. {CALL}")) as (client, _):
        manager = client.responses.stream(model="tiny", input="Hello", tools=[TOOL])
        heard = ""
        async with manager as stream:
            async for event in stream:
                if isinstance(event, ResponseTextDeltaEvent):
                    heard += event.delta
            final = await stream.get_final_response()
        assert final.output_text == heard
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


async def test_the_sdk_parses_what_it_asked_the_form_of() -> None:
    async with visiting(says('{"city": "Bonn"}')) as (client, engine):
        parsed = await client.responses.parse(model="tiny", input="Where?", text_format=Place)
        assert parsed.output_parsed == Place(city="Bonn")
        async with client.responses.stream(
            model="tiny", input="Where?", text_format=Place
        ) as stream:
            assert (await stream.get_final_response()).output_parsed == Place(city="Bonn")
    assert all("city" in request.grammar for request in engine.requests)


async def test_the_sdks_own_items_come_back() -> None:
    """They come as objects and as all of their fields, with what the SDK parsed in them."""
    async with visiting(says(f"Let me see. {CALL}")) as (client, engine):
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
    _, objects, dumped = engine.requests
    assert objects.prompt_ids == dumped.prompt_ids


async def test_the_sdk_counts() -> None:
    async with visiting(says("x")) as (client, _):
        tools: list[FunctionToolParam] = [TOOL]
        counted = await client.responses.input_tokens.count(
            model="tiny", input="Hello", tools=tools, instructions="Be brief."
        )
        made = await client.responses.create(
            model="tiny", input="Hello", tools=tools, instructions="Be brief."
        )
        assert made.usage is not None
        assert counted.input_tokens == made.usage.input_tokens

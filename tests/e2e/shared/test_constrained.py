"""A model of random weights that must call tools or fit a schema, through a real `serve run`."""

import asyncio
import json
from typing import Any

import jsonschema
import openai
import pytest

from tests.e2e.server import THROUGHPUT, Server
from tests.effort import tries

pytestmark = THROUGHPUT

REQUESTS = tries(8, 100)
AT_ONCE = 8
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "units": {"enum": ["metric", "imperial"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
BASKET = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"sku": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"}},
                "required": ["sku"],
                "additionalProperties": False,
            },
        },
        "gift": {"type": ["boolean", "null"]},
    },
    "required": ["items", "gift"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS = {"weather": PLACE, "order": BASKET, "now": NOTHING}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


def ask_many(server: Server, **fields: object) -> list[Any]:
    """The choices of REQUESTS requests, each with a seed of its own."""

    async def main() -> list[Any]:
        slots = asyncio.Semaphore(AT_ONCE)
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

            async def one(seed: int) -> Any:
                async with slots:
                    answer = await client.chat.completions.create(  # type: ignore[call-overload]
                        model="tiny",
                        messages=[{"role": "user", "content": f"Number {seed}"}],
                        seed=seed,
                        max_tokens=600,
                        **fields,
                    )
                return answer.choices[0]

            return await asyncio.gather(*map(one, range(REQUESTS)))

    return asyncio.run(main())


@pytest.mark.parametrize("parallel", [True, False])
def test_a_required_call_is_always_valid(server: Server, parallel: bool) -> None:
    choices = ask_many(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=parallel)
    names = set()
    for choice in choices:
        assert choice.finish_reason in ("tool_calls", "length")
        calls = choice.message.tool_calls
        assert calls, choice
        if choice.finish_reason == "length":  # the last call of very many may be cut
            calls = calls[:-1]
        assert parallel or len(calls) == 1
        for call in calls:
            names.add(call.function.name)
            jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        assert not choice.message.content
    # One call of each answer, where the model rarely begins with one of the tools.
    assert names == set(SCHEMAS) if parallel else len(names) > 1


def test_a_named_tool_is_the_one_that_is_called(server: Server) -> None:
    named = {"type": "function", "function": {"name": "order"}}
    for choice in ask_many(server, tools=TOOLS, tool_choice=named, parallel_tool_calls=False):
        (call,) = choice.message.tool_calls
        assert call.function.name == "order"
        jsonschema.validate(json.loads(call.function.arguments), BASKET)


def test_an_answer_always_fits_its_schema(server: Server) -> None:
    schema = {"name": "basket", "strict": True, "schema": BASKET}
    form = {"type": "json_schema", "json_schema": schema}
    for choice in ask_many(server, response_format=form):
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), BASKET)

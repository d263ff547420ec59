"""The real client, as its users write it."""

import asyncio

import pytest
from openai import BadRequestError, RateLimitError

from deployments.wire import ErrorKind, RequestError
from tests.ingress.engines import ScriptedEngine, fails, says
from tests.openai.serving import sdk, served

MESSAGES = [{"role": "user", "content": "Hello"}]


def test_the_sdk_reads_answers_and_streams() -> None:
    async def asks() -> None:
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

    asyncio.run(asks())


def test_the_sdks_own_accumulator_agrees() -> None:
    async def asks() -> None:
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

    asyncio.run(asks())


def test_errors_are_the_sdks_own() -> None:
    async def asks() -> None:
        overloaded = fails(RequestError(ErrorKind.OVERLOADED, "later"))
        async with sdk(served(ScriptedEngine(overloaded))) as client:
            with pytest.raises(RateLimitError):
                await client.chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
            with pytest.raises(BadRequestError) as wrong:
                await client.completions.create(model="tiny", prompt="x", temperature=5)
        assert wrong.value.param == "temperature"

    asyncio.run(asks())

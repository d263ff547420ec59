"""Three models where two may be loaded: what a request needs is loaded, what is busy stays."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server import ONE_MODE, Server
from tests.e2e.shared.models import FLEET, NAMES, PRESETS

pytestmark = ONE_MODE


@pytest.fixture(scope="module")
def fleet(server: Server) -> Server:
    """The server, with no more models than `tiny`, so that two others may be loaded."""
    for name in NAMES[1:]:
        if state(server, name) != "unloaded":
            server.http.post("/models/unload", json={"model": name}).raise_for_status()
    server.eventually(lambda: all(state(server, name) == "unloaded" for name in NAMES[1:]))
    return server


@asynccontextmanager
async def sdk(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:
        yield client


async def say(client: openai.AsyncOpenAI, model: str, prompt: str = "Hello") -> str:
    answer = await client.completions.create(
        model=model, prompt=prompt, max_tokens=8, temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    return answer.choices[0].text


async def states(client: openai.AsyncOpenAI) -> dict[str, str]:
    models: Any = await client.models.list()
    return {model.id: model.status["value"] for model in models.data if model.id in FLEET}


def listed(server: Server) -> list[str]:
    models = server.http.get("/v1/models").json()["data"]
    return [model["id"] for model in models]


def state(server: Server, model: str) -> str:
    found = server.http.get(f"/v1/models/{model}").json()
    value: str = found["status"]["value"]
    return value


def loads(server: Server, model: str) -> float:
    """How often a model was loaded since the start."""
    for line in server.http.get("/metrics").text.splitlines():
        if line.startswith("manta_router_loads_total{") and f'model="{model}"' in line:
            return float(line.rpartition(" ")[2])
    return 0.0


def test_models_come_and_go_as_requests_need_them(fleet: Server) -> None:
    async def talk() -> None:
        async with sdk(fleet) as client:
            assert await states(client) == dict.fromkeys(FLEET, "unloaded")
            said = [await say(client, "a"), await say(client, "b")]
            assert len(set(said)) == 2
            assert await say(client, "alpha") == said[0]
            assert await states(client) == {"a": "loaded", "b": "loaded", "c": "unloaded"}
            await say(client, "c")  # for which b has to go, because a was used later
            assert await states(client) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
            await client.post("/models/unload", body={"model": "c"}, cast_to=object)
            await asyncio.to_thread(fleet.eventually, lambda: state(fleet, "c") == "unloaded")
            assert await say(client, "b") == said[1]

    asyncio.run(talk())


def test_a_busy_model_is_never_evicted(fleet: Server) -> None:
    async def stream(client: openai.AsyncOpenAI, model: str) -> tuple[str, int]:
        chunks = await client.completions.create(
            model=model,
            prompt="Once upon a time",
            max_tokens=1500,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        text, tokens = "", 0
        async for chunk in chunks:
            text += "".join(choice.text for choice in chunk.choices)
            tokens = chunk.usage.completion_tokens if chunk.usage else 0
        return text, tokens

    async def talk() -> None:
        async with sdk(fleet) as client:
            await say(client, "b")
            alone = {"b": await stream(client, "b"), "a": await stream(client, "a")}
            busy = [asyncio.create_task(stream(client, model)) for model in ("b", "a")]
            third = asyncio.create_task(say(client, "c"))
            together = await asyncio.gather(*busy)
            assert dict(zip(("b", "a"), together, strict=True)) == alone
            assert [tokens for _, tokens in together] == [1500, 1500]
            await third

    asyncio.run(talk())


def test_20_first_requests_at_once_cost_one_load(fleet: Server) -> None:
    async def talk() -> list[str]:
        async with sdk(fleet) as client:
            await client.post("/models/unload", body={"model": "c"}, cast_to=object)
            await asyncio.to_thread(fleet.eventually, lambda: state(fleet, "c") == "unloaded")
            before = loads(fleet, "c")
            said = await asyncio.gather(*(say(client, "c") for _ in range(20)))
            assert loads(fleet, "c") == before + 1
            return said

    assert len(set(asyncio.run(talk()))) == 1


def test_the_states_are_told_as_they_change(fleet: Server) -> None:
    async def watch(told: list[str], seen: asyncio.Event) -> None:
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("GET", f"{fleet.url}/models/sse") as events,
        ):
            async for line in events.aiter_lines():
                if line.startswith("data:") and '"model":"b"' in line:
                    told.append(line)
                    seen.set()

    async def talk() -> list[str]:
        told: list[str] = []
        seen = asyncio.Event()
        watching = asyncio.create_task(watch(told, seen))
        await seen.wait()
        async with sdk(fleet) as client:
            await say(client, "b")
            await client.post("/models/unload", body={"model": "b"}, cast_to=object)
            await say(client, "a")
        while not any('"state":"unloaded"' in line for line in told[2:]):
            seen.clear()
            await seen.wait()
        watching.cancel()
        return told

    told = " ".join(asyncio.run(talk()))
    for state in ("ready", "unloading", "unloaded"):
        assert f'"state":"{state}"' in told


def test_a_wrong_model_is_refused_and_a_broken_one_says_why(fleet: Server, presets: Path) -> None:
    missing = fleet.http.post("/v1/completions", json={"model": "d", "prompt": "x"})
    assert missing.status_code == 404
    presets.write_text(PRESETS + "[d]\nmodel = d\n")
    broken = shutil.copytree(presets.with_name("tiny"), presets.with_name("d"))
    config = (broken / "config.json").read_text()
    (broken / "config.json").write_text(config.replace('"llama"', '"no-such-type"'))
    assert fleet.http.get("/models?reload=1").status_code == 200
    refused = fleet.http.post("/v1/completions", json={"model": "d", "prompt": "x"})
    assert refused.status_code == 503
    assert "no-such-type" in refused.json()["error"]["message"]
    presets.write_text(PRESETS + "[d]\nmodel = d\nno-such-key = 1\n")
    wrong = fleet.http.get("/models?reload=1")
    assert wrong.status_code == 400
    assert "no-such-key" in wrong.json()["error"]["message"]
    presets.write_text(PRESETS)
    assert fleet.http.get("/models?reload=1").status_code == 200
    fleet.eventually(lambda: listed(fleet) == list(NAMES))

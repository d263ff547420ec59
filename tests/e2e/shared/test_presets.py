"""Three models where two may be loaded: what a request needs is loaded, what is busy stays."""

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests import effort
from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import FLEET, LISTED, NAMES, PRESETS, in_folder

pytestmark = THROUGHPUT


@pytest.fixture(scope="module")
def fleet(server: Server) -> Server:
    """The server, with no more models than `tiny`, so that two others may be loaded."""
    unload(server, *NAMES[1:])
    return server


def unload(server: Server, *names: str) -> None:
    """Unloads the models that are loaded, and waits until all are unloaded."""
    for name in names:
        if state(server, name) != "unloaded":
            server.http.post("/models/unload", json={"model": name}).raise_for_status()
    server.eventually(lambda: all(state(server, name) == "unloaded" for name in names))


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


async def stream(
    client: openai.AsyncOpenAI, model: str, began: Callable[[], object] | None = None
) -> tuple[str, int]:
    """`began` is called with the first token."""
    chunks = await client.completions.create(
        model=model,
        prompt="Once upon a time",
        max_tokens=500,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    text, tokens = "", 0
    async for chunk in chunks:
        if began:
            await asyncio.to_thread(began)
            began = None
        text += "".join(choice.text for choice in chunk.choices)
        tokens = chunk.usage.completion_tokens if chunk.usage else 0
    return text, tokens


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


def until_known_idle(server: Server) -> None:
    """Waits until the router knows that nothing runs: its replicas report it a moment later."""

    def none_comes() -> bool:
        lines = server.http.get("/metrics").text.splitlines()
        coming = [line for line in lines if line.startswith("manta_router_coming_requests{")]
        return all(line.endswith(" 0.0") for line in coming)

    def none_runs() -> bool:
        told = server.http.get("/fleet").json()
        return bool(told["time"] > known_at) and told["running"] == told["waiting"] == 0

    server.eventually(none_comes)
    known_at = time.time()
    server.eventually(none_runs)


def test_models_come_and_go_as_requests_need_them(fleet: Server) -> None:
    async def talk() -> list[str]:
        async with sdk(fleet) as client, watched(fleet, "b") as told:
            assert await states(client) == dict.fromkeys(FLEET, "unloaded")
            said = [await say(client, "a"), await say(client, "b")]
            assert len(set(said)) == 2
            assert await say(client, "alpha") == said[0]
            assert await states(client) == {"a": "loaded", "b": "loaded", "c": "unloaded"}
            # For `c` the model `b` has to go, because `a` was used later.
            await asyncio.to_thread(until_known_idle, fleet)
            many = await asyncio.gather(*(say(client, "c") for _ in range(20)))
            assert len(set(many)) == 1
            assert loads(fleet, "c") == 1
            assert await states(client) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
            await asyncio.to_thread(fleet.eventually, lambda: told[-1] == "unloaded")
            if not effort.exhaustive:  # tests/router has models that come again
                return told
            await client.post("/models/unload", body={"model": "c"}, cast_to=object)
            await asyncio.to_thread(fleet.eventually, lambda: state(fleet, "c") == "unloaded")
            assert await say(client, "b") == said[1]
        return told

    states_of_b = asyncio.run(talk())
    wanted = ["unloaded", "loading", "ready", "unloading", "unloaded"]
    wanted += ["loading"] if effort.exhaustive else []
    assert [reached for reached in states_of_b if reached in wanted][: len(wanted)] == wanted


@asynccontextmanager
async def watched(server: Server, model: str) -> AsyncIterator[list[str]]:
    """The states of a model one after the other, as `/models/sse` tells of them."""
    states: list[str] = []
    begun = asyncio.Event()

    async def watch() -> None:
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("GET", f"{server.url}/models/sse") as events,
        ):
            async for line in events.aiter_lines():
                found = re.search(rf'"model":"{model}".*?"state":"(\w+)"', line)
                if found and found[1] not in states[-1:]:
                    states.append(found[1])
                    begun.set()

    watching = asyncio.create_task(watch())
    await begun.wait()
    yield states
    watching.cancel()


@pytest.mark.exhaustive  # tests/router has the choice of whom to evict
def test_a_busy_model_is_never_evicted(fleet: Server) -> None:
    async def talk() -> None:
        async with sdk(fleet) as client:
            await say(client, "b")
            alone = {"b": await stream(client, "b"), "a": await stream(client, "a")}
            busy = [asyncio.create_task(stream(client, model)) for model in ("b", "a")]
            third = asyncio.create_task(say(client, "c"))
            together = await asyncio.gather(*busy)
            assert dict(zip(("b", "a"), together, strict=True)) == alone
            assert [tokens for _, tokens in together] == [500, 500]
            await third

    asyncio.run(talk())


def test_a_deleted_model_answers_to_the_end(fleet: Server, presets: Path) -> None:
    async def talk() -> None:
        async with sdk(fleet) as client:
            whole, _ = await stream(client, "b")
            text, tokens = await stream(client, "b", lambda: delete(fleet, presets, "b"))
            assert (text, tokens) == (whole, 500)

    asyncio.run(talk())
    fleet.eventually(lambda: "b" not in listed(fleet))
    refuse_unknown(fleet, "b")
    rewrite(presets, PRESETS)
    assert fleet.http.get("/models?reload=1").status_code == 200


def refuse_unknown(server: Server, model: str) -> None:
    """Its status is 200 where the router took so long that the answer has begun before."""
    answer = server.http.post("/v1/completions", json={"model": model, "prompt": "x"})
    assert answer.status_code in (404, 200)
    assert answer.json()["error"]["code"] == "model_not_found"


def rewrite(presets: Path, text: str) -> None:
    """Replaces the file at once: the router looks at it every now and then."""
    written = presets.with_suffix(".new")
    written.write_text(in_folder(presets.parent, text))
    written.replace(presets)


def delete(server: Server, presets: Path, model: str) -> None:
    rewrite(presets, PRESETS.replace(f"[{model}]\nmodel = {model}\n", ""))
    assert server.http.get("/models?reload=1").status_code == 200


def test_a_load_is_cancelled_by_an_unload(fleet: Server) -> None:
    unload(fleet, "c")
    fleet.http.post("/models/load", json={"model": "c"}).raise_for_status()
    fleet.eventually(lambda: state(fleet, "c") in ("loading", "loaded"))
    fleet.http.post("/models/unload", json={"model": "c"}).raise_for_status()
    fleet.eventually(lambda: state(fleet, "c") == "unloaded")


def test_a_wrong_model_is_refused_and_a_broken_one_says_why(fleet: Server, presets: Path) -> None:
    refuse_unknown(fleet, "d")
    rewrite(presets, PRESETS + "[d]\nmodel = d\n")
    broken = shutil.copytree(presets.with_name("tiny"), presets.with_name("d"))
    config = (broken / "config.json").read_text()
    (broken / "config.json").write_text(config.replace('"llama"', '"no-such-type"'))
    assert fleet.http.get("/models?reload=1").status_code == 200
    # Its status depends on the proxy: behind HAProxy an answer that takes long has begun before.
    refused = fleet.http.post("/v1/completions", json={"model": "d", "prompt": "x"})
    assert refused.status_code in (503, 200)
    assert refused.json()["error"]["code"] == "service_unavailable"
    assert "no-such-type" in refused.json()["error"]["message"]
    rewrite(presets, PRESETS + "[d]\nmodel = d\nno-such-key = 1\n")
    wrong = fleet.http.get("/models?reload=1")
    assert wrong.status_code == 400
    assert "no-such-key" in wrong.json()["error"]["message"]
    rewrite(presets, PRESETS)
    assert fleet.http.get("/models?reload=1").status_code == 200
    fleet.eventually(lambda: listed(fleet) == list(LISTED))

"""Two replicas: prefixes find theirs, and what dies or is too much is told apart."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.server import Server

SETTINGS = {
    "name": "tiny",
    "dtype": "float32",
    "num_replicas": 2,
    "num_cpus": 0.5,
    "max_running": 2,
    "max_waiting": 4,
}


@pytest.fixture(scope="module")
def own_server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("failover")
    with Server(folder, {"model": str(checkpoint), **SETTINGS}) as running:
        yield running


def test_requests_find_the_replica_that_holds_their_prefix(own_server: Server) -> None:
    async def ask(client: httpx.AsyncClient, prompt: str) -> int:
        body = {"prompt": prompt, "max_tokens": 4}
        answer = await client.post(f"{own_server.url}/v1/completions", json=body, timeout=60)
        cached: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached

    async def ask_twice(letters: str) -> tuple[list[int], list[int]]:
        prompts = [letter * 600 for letter in letters]
        async with httpx.AsyncClient() as client:
            first = await asyncio.gather(*(ask(client, prompt) for prompt in prompts))
            return list(first), [await ask(client, prompt) for prompt in prompts]

    def requests() -> list[int]:
        return [one["total_requests"] for one in own_server.http.get("/stats").json()["replicas"]]

    def routed() -> int:
        """How many replicas the router has heard of."""
        return own_server.http.get("/metrics").text.count("manta_router_coming_requests{")

    def where(letters: str) -> tuple[list[int], list[int]]:
        """Tokens found for each prompt when it comes again, and requests by replica."""
        before = requests()
        first, second = asyncio.run(ask_twice(letters))
        assert first == [0] * 4
        return second, [n - m for n, m in zip(requests(), before, strict=True)]

    # A model takes requests as soon as one of its replicas does.
    own_server.eventually(lambda: routed() == len(requests()) == 2)
    expected = [600 // 16 * 16] * 4, [4, 4]
    # An ingress goes without a router that does not answer in time, as on a machine that is busy.
    seen = [where("abcd")]
    while seen[-1] != expected and len(seen) < 5:
        seen.append(where(["efgh", "ijkl", "mnop", "qrst"][len(seen) - 1]))
    assert expected in seen, seen


def test_a_stream_outlives_the_replica_that_began_it(own_server: Server) -> None:
    request = {
        "model": "tiny",
        "prompt": "Once upon a time",
        "max_tokens": 1200,
        "temperature": 0.8,
        "seed": 21,  # each draw is 4e-6 or more from where it would be another token
        "extra_body": {"ignore_eos": True},
    }
    with openai.OpenAI(base_url=f"{own_server.url}/v1", api_key="none", max_retries=0) as client:
        undisturbed = client.completions.create(**request)  # type: ignore[call-overload]
        stream = client.completions.create(  # type: ignore[call-overload]
            **request, stream=True, stream_options={"include_usage": True}
        )
        chunks = []
        for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 20:
                own_server.kill("MantaModel")
    assert "goes on elsewhere" in own_server.log.read_text()
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == undisturbed.choices[0].text
    assert chunks[-1].usage.completion_tokens == undisturbed.usage.completion_tokens == 1200
    own_server.eventually(own_server.is_ready)


def test_requests_are_answered_while_the_router_is_down(own_server: Server) -> None:
    def ask() -> httpx.Response:
        body = {"prompt": "abc", "max_tokens": 5}
        return own_server.http.post("/v1/completions", json=body)

    assert ask().status_code == 200
    own_server.kill("Router")
    assert [ask().status_code for _ in range(4)] == [200] * 4
    own_server.eventually(own_server.is_ready)


def test_what_is_too_much_is_refused_and_what_is_accepted_finishes(own_server: Server) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
        body = {"prompt": f"{number}", "max_tokens": 200, "ignore_eos": True}
        return await client.post(f"{own_server.url}/v1/completions", json=body, timeout=120)

    async def ask_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(40)))

    answers = asyncio.run(ask_all())
    refused = [answer for answer in answers if answer.status_code == 429]
    served = [answer for answer in answers if answer.status_code == 200]
    assert len(refused) + len(served) == 40
    assert refused
    assert all(answer.headers["retry-after"] for answer in refused)
    assert all(answer.json()["error"]["code"] == "overloaded" for answer in refused)
    assert len(served) >= 2 + 4
    assert all(answer.json()["usage"]["completion_tokens"] == 200 for answer in served)
    own_server.eventually(lambda: own_server.pages_used() == 0)

"""What is killed at a random moment disturbs no answer: replicas, the router, an ingress."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server import THROUGHPUT_MODE, Server
from tests.effort import tries

SETTINGS = {
    "name": "tiny",
    "dtype": "float32",
    "num_replicas": 2,
    "num_cpus": 0.5,
    "max_running": 16,
    "context_length": 1024,
}
ROUNDS = tries(2, 6)
MOST_TOKENS = 4000  # of some 5,900, at which a replica is killed
SEED = 41
# Of jobs whose every draw is 1e-5 or more from where it would be another token: a step of another
# size rounds by 1e-6, and streams that go on elsewhere are in such steps.
SEEDS = (12, 513, 14, 15, 16, 17, 18, 619, 220, 21, 222, 123)


@pytest.fixture(scope="module", params=["default", "throughput"])
def pair(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    environment = THROUGHPUT_MODE if request.param == "throughput" else {}
    folder = tmp_path_factory.mktemp(f"chaos-{request.param}")
    with Server(folder, {"model": str(checkpoint), **SETTINGS}, environment) as running:
        yield running


@dataclass(frozen=True)
class Said:
    """All that a client sees of one answer.

    Batches of other sizes round the last bits of log-probabilities another way, also undisturbed.
    """

    text: str
    logprobs: tuple[float, ...]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int

    def is_exactly(self, other: "Said") -> bool:
        unrounded = replace(other, logprobs=self.logprobs)
        return self == unrounded and self.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def jobs() -> list[dict[str, Any]]:
    """12 greedy and 12 seeded requests; a third of each is bound to a grammar, a third may stop."""
    made = []
    for number in range(24):
        request: dict[str, Any] = {
            "model": "tiny",
            "prompt": f"{number} " * 20,
            "max_tokens": 240 + number,
            "logprobs": 1,
            "temperature": 0 if number < 12 else 0.9,
        }
        extra: dict[str, Any] = {}
        if number >= 12:
            request["seed"] = SEEDS[number - 12]
        if number % 3 == 0:
            extra["structured_outputs"] = {"regex": "([a-d]{3} ){40,80}"}
        elif number % 3 == 1:
            request["stop"] = ["zq", "xj"]
            extra["ignore_eos"] = True
        else:
            extra["ignore_eos"] = True
        made.append({**request, "extra_body": extra})
    return made


class Moment:
    """Comes when the clients together have had so many tokens."""

    def __init__(self, tokens: int) -> None:
        self._left = tokens
        self.came = asyncio.Event()

    def had(self, tokens: int) -> None:
        self._left -= tokens
        if self._left <= 0:
            self.came.set()


async def stream(client: openai.AsyncOpenAI, job: dict[str, Any], moment: Moment) -> Said:
    text, usage = "", None
    logprobs: list[float] = []
    reasons: list[str] = []
    chunks = await client.completions.create(
        **job, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in chunks:
        for choice in chunk.choices:
            text += choice.text
            came = choice.logprobs.token_logprobs if choice.logprobs else None
            moment.had(len(came or ()))
            logprobs += came or ()
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
        usage = chunk.usage or usage
    assert usage is not None
    [reason] = reasons
    return Said(text, tuple(logprobs), reason, usage.prompt_tokens, usage.completion_tokens)


def sdk(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/v1",
        api_key="none",
        max_retries=0,
        timeout=120,
    )


async def all_streams(server: Server, kill_after: int | None, rng: random.Random) -> list[Said]:
    """Every job at once; one replica dies when so many tokens have come to the clients."""
    moment = Moment(kill_after or 0)
    async with sdk(server) as client:
        running = [asyncio.create_task(stream(client, job, moment)) for job in jobs()]
        if kill_after is not None:
            await moment.came.wait()
            os.kill(rng.choice(server.replicas("MantaModel")), signal.SIGKILL)
        return await asyncio.gather(*running)


def generated(server: Server) -> float:
    return server.stats()["tokens_generated"]


def both_serve(server: Server) -> bool:
    replicas = server.http.get("/stats").json()["replicas"]
    return len(replicas) == 2


@pytest.mark.timeout(900)
def test_streams_outlive_their_replica_to_the_letter(pair: Server) -> None:
    rng = random.Random(SEED)
    pair.eventually(lambda: both_serve(pair))
    undisturbed = asyncio.run(all_streams(pair, None, rng))
    exact = 0
    for _ in range(ROUNDS):
        pair.eventually(lambda: both_serve(pair))
        said = asyncio.run(all_streams(pair, rng.randint(1, MOST_TOKENS), rng))
        exact += sum(map(Said.is_exactly, said, undisturbed))
    assert exact == ROUNDS * len(undisturbed)
    assert 'phase="mid_stream"' in pair.http.get("/metrics").text


@pytest.mark.timeout(600)
def test_nobody_notices_that_the_router_was_killed(pair: Server) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> int:
        body = {"prompt": f"{number % 8} " * 40, "max_tokens": 8}
        answer = await client.post(f"{pair.url}/v1/completions", json=body)
        return answer.status_code

    async def load() -> list[int]:
        codes: list[int] = []

        async def client_of(first: int, client: httpx.AsyncClient) -> None:
            for number in range(first, first + 40):
                code = await ask(client, number)
                codes.append(code)

        async with httpx.AsyncClient(timeout=60) as client:
            clients = [asyncio.create_task(client_of(n, client)) for n in range(8)]
            await asyncio.to_thread(pair.eventually, lambda: len(codes) >= 80)
            pair.kill("Router")
            await asyncio.gather(*clients)
        return codes

    codes = asyncio.run(load())
    assert codes == [200] * 320
    pair.eventually(pair.is_ready)
    pair.eventually(lambda: finds_its_prefix(pair))


def finds_its_prefix(server: Server) -> bool:
    """Whether several prompts in turn all find the replica that has them."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        prompts = [f"{letter}" * 320 for letter in "abcdef"]
        for prompt in prompts:
            client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        details = [
            client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}).json()[
                "usage"
            ]["prompt_tokens_details"]
            for prompt in prompts
        ]
    return all(one["cached_tokens"] == 304 for one in details)


def test_unary_answers_outlive_all_replicas(pair: Server) -> None:
    """With none left the request waits for the one that Serve starts."""
    body = {"prompt": "Once", "max_tokens": 600, "temperature": 0, "ignore_eos": True}

    async def ask(client: httpx.AsyncClient, path: str, body: object) -> Any:
        answer = await client.post(f"{pair.url}{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ask_all(kill: bool) -> list[object]:
        chat = {
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 600,
            "temperature": 0,
        }
        native = {"prompt": "Once", "n_predict": 600, "temperature": 0, "ignore_eos": True}
        async with httpx.AsyncClient(timeout=120) as client:
            before = generated(pair)
            asked = [
                asyncio.create_task(ask(client, *one))
                for one in (
                    ("/v1/completions", body),
                    ("/v1/chat/completions", {**chat, "ignore_eos": True}),
                    ("/v1/messages", {**chat, "model": "tiny"}),
                    ("/completion", native),
                )
            ]
            if kill:
                await asyncio.to_thread(pair.eventually, lambda: generated(pair) >= before + 40)
                pair.kill("MantaModel")
            text, message, anthropic, llama = await asyncio.gather(*asked)
        return [
            text["choices"],
            text["usage"]["completion_tokens"],
            message["choices"][0]["message"]["content"],
            anthropic["content"],
            anthropic["usage"]["output_tokens"],
            llama["content"],
        ]

    pair.eventually(lambda: both_serve(pair))
    assert asyncio.run(ask_all(kill=True)) == asyncio.run(ask_all(kill=False))
    pair.eventually(lambda: both_serve(pair))


def test_a_dead_ingress_leaves_nothing_running(pair: Server) -> None:
    """Its clients have to come again; what it had asked for ends, and the pages are free."""

    [ingress] = pair.replicas("openai")

    async def ask(client: httpx.AsyncClient) -> None:
        """Sequences that would take minutes, as few of them run at once."""
        body = {"prompt": ["abc"] * 400, "max_tokens": 900, "ignore_eos": True, "stream": True}
        async with client.stream("POST", f"{pair.url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for _ in answer.aiter_bytes():
                pass

    def waits() -> bool:
        return pair.stats()["waiting_requests"] > 500

    async def ask_and_kill() -> list[object]:
        async with httpx.AsyncClient(timeout=60) as client:
            asked = [asyncio.create_task(ask(client)) for _ in range(2)]
            await asyncio.to_thread(pair.eventually, waits)
            os.kill(ingress, signal.SIGKILL)
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(ask_and_kill())
    assert all(isinstance(one, httpx.HTTPError) for one in answers)
    pair.eventually(lambda: pair.pages_used() == 0)
    pair.eventually(pair.is_ready)

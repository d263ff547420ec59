"""Replicas, the router or an ingress die at a random moment, which disturbs no answer."""

import asyncio
import itertools
import json
import os
import random
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.e2e.server import Server
from tests.e2e.shared.said import (
    LONG,
    PAIR,
    PAIR_REPLICAS,
    STREAMS,
    UNARY,
    both_serve,
    streamed,
    unary,
)
from tests.effort import tries

ROUNDS = tries(1, 6)
MAX_ROUNDS = 4
MOST_TOKENS = 2000  # of some 5,900, at which a replica is killed
SEED = 41
# Seeds with which each drawn token is ahead of the next one by 8e-4 or more, as logits: a step of
# another size rounds by 1e-6, and streams that go on elsewhere are in such steps.
SEEDS = (12, 513, 14, 15, 16, 17, 18, 619, 220, 21, 222, 123)


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
            "model": PAIR,
            "prompt": f"{number} " * 20,
            "max_tokens": 240 + number,
            "logprobs": 1,
            "temperature": 0 if number < 12 else 0.9,
        }
        if number >= 12:
            request["seed"] = SEEDS[number - 12]
        if number % 3 == 0:
            request["structured_outputs"] = {"regex": "([a-d]{3} ){40,80}"}
        elif number % 3 == 1:
            request["stop"] = ["zq", "xj"]
            request["ignore_eos"] = True
        else:
            request["ignore_eos"] = True
        made.append(request)
    return made


class Moment:
    """Comes when the clients together have had so many chunks. One of a slow client has several
    tokens, so that all answers may end before."""

    def __init__(self, chunks: int) -> None:
        self._left = chunks
        self._came = asyncio.Event()

    def had(self, chunks: int) -> None:
        self._left -= chunks
        if self._left <= 0:
            self._came.set()

    async def comes(self, *answers: "asyncio.Task[Said]") -> None:
        """Returns when it has come, or when all of these have ended."""
        either = [asyncio.create_task(self._came.wait()), asyncio.create_task(_ended(answers))]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in either:
            task.cancel()


async def _ended(answers: Iterable["asyncio.Task[Said]"]) -> None:
    await asyncio.wait(answers)


async def stream(client: httpx.AsyncClient, job: dict[str, Any], moment: Moment) -> Said:
    """Reads what came only after its end: a client that lags would miss the moment."""
    body = {**job, "stream": True, "stream_options": {"include_usage": True}}
    lines: list[str] = []
    path = "/v1/chat/completions" if "messages" in job else "/v1/completions"
    async with client.stream("POST", path, json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):  # not a comment, which ends a long silence
                lines.append(line.removeprefix("data: "))
                moment.had(line.count('"text":"') + line.count('"content":"'))
    assert lines.pop() == "[DONE]"
    return folded([json.loads(line) for line in lines])


def folded(chunks: list[Any]) -> Said:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    logprobs = [_logprobs(choice["logprobs"]) for choice in choices if choice["logprobs"]]
    [reason] = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    usage = chunks[-1]["usage"]
    return Said(
        "".join(_text(choice) for choice in choices),
        tuple(chain.from_iterable(logprobs)),
        reason,
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )


def _text(choice: Any) -> str:
    text = choice["text"] if "text" in choice else choice["delta"].get("content")
    return text or ""


def _logprobs(found: Any) -> list[float]:
    """Reads the log-probabilities of a completion or of a chat."""
    if "token_logprobs" in found:
        return list(found["token_logprobs"])
    return [entry["logprob"] for entry in found["content"]]


async def all_streams(server: Server, kill_after: int | None, rng: random.Random) -> list[Said]:
    """Every job at once; one replica dies when so many pieces have come to the clients."""
    moment, victim = Moment(kill_after or 0), rng.choice(server.replicas(*PAIR_REPLICAS))
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
        running = [asyncio.create_task(stream(client, job, moment)) for job in jobs()]
        if kill_after is not None:
            await moment.comes(*running)
            os.kill(victim, signal.SIGKILL)
        return await asyncio.gather(*running)


@pytest.mark.exhaustive  # streams of all protocols outlive theirs below
@pytest.mark.timeout(900)
def test_streams_outlive_their_replica_to_the_letter(pair: Server) -> None:
    rng = random.Random(SEED)
    before = pair.failovers()
    undisturbed = asyncio.run(all_streams(pair, None, rng))

    def some_are_lost() -> bool:
        """Whether a stream was lost: all of the dead replica's may have ended, or not begun."""
        pair.eventually(lambda: both_serve(pair))
        said = asyncio.run(all_streams(pair, rng.randint(1, MOST_TOKENS), rng))
        assert all(map(Said.is_exactly, said, undisturbed))
        return pair.failovers() > before

    for _ in range(ROUNDS):
        lost = some_are_lost()
    assert lost or any(some_are_lost() for _ in range(MAX_ROUNDS))


@pytest.mark.exhaustive  # tests/ingress/fleet/test_fleet.py: requests flow while it is silent
@pytest.mark.timeout(600)
def test_nobody_notices_that_the_router_was_killed(pair: Server) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> str:
        body = {"model": PAIR, "prompt": f"{number % 8} " * 40, "max_tokens": 8, "temperature": 0}
        answer = await client.post(f"{pair.url}/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["choices"][0]["text"]
        return text

    async def load(kill: bool) -> list[list[str]]:
        n_said = itertools.count()

        async def client_of(client: httpx.AsyncClient) -> list[str]:
            said = []
            for number in range(40 if kill else 8):
                said.append(await ask(client, number))
                if kill and next(n_said) == 80:
                    pair.kill("Router")
            return said

        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(client_of(client) for _ in range(8 if kill else 1)))

    [alone] = asyncio.run(load(kill=False))
    assert len(set(alone)) > 1
    assert asyncio.run(load(kill=True)) == [5 * alone] * 8
    pair.eventually(pair.is_ready)
    pair.eventually(lambda: finds_its_prefix(pair))


def finds_its_prefix(server: Server) -> bool:
    """Whether several prompts in turn all find the replica that has them."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        prompts = [f"{letter}" * 320 for letter in "abcdef"]
        for prompt in prompts:
            client.post("/v1/completions", json=asked(prompt))
        usages = [
            client.post("/v1/completions", json=asked(prompt)).json()["usage"] for prompt in prompts
        ]
    return all(usage["prompt_tokens_details"]["cached_tokens"] == 304 for usage in usages)


def asked(prompt: str) -> dict[str, object]:
    return {"model": PAIR, "prompt": prompt, "max_tokens": 1}


@pytest.mark.timeout(900)
def test_answers_of_all_protocols_outlive_all_replicas(pair: Server) -> None:
    """Answers wait for the replica that Serve starts when none is left.

    Each stream has begun by then.
    """
    undisturbed = asyncio.run(answers(pair, lambda: None))

    def all_are_lost() -> bool:
        """On a slow machine a stream may have ended when the last one begins."""
        pair.eventually(lambda: both_serve(pair))
        before, replicas = pair.failovers(), pair.replicas(*PAIR_REPLICAS)
        said = asyncio.run(answers(pair, lambda: kill_all(replicas)))
        for (path, _), answer, expected in zip(UNARY + STREAMS, said, undisturbed, strict=True):
            same = takewhile(lambda pair: pair[0] == pair[1], zip(answer, expected, strict=False))
            where = f"{path}: {len(answer)} characters, the first {len([*same])} as expected"
            assert answer == expected, where
        return pair.failovers() - before >= len(STREAMS)

    assert any(all_are_lost() for _ in range(MAX_ROUNDS))


@pytest.mark.exhaustive  # tests/ingress/fleet/test_fleet.py: what had not begun goes elsewhere
def test_embeddings_outlive_their_replica(pair: Server) -> None:
    """The other replica computes again what the dead one had begun, and nothing else."""
    texts = [f"{number} " * 40 for number in range(400)]
    body = {"model": PAIR, "input": texts, "pooling": "mean"}

    async def embed(kill: bool) -> NDArray[np.float64]:
        async with httpx.AsyncClient(base_url=pair.url, timeout=120) as client:
            asking = asyncio.create_task(client.post("/v1/embeddings", json=body))
            if kill:
                await asyncio.to_thread(
                    pair.eventually,
                    lambda: asking.done() or pair.stats()["active_requests"] > 0,
                )
                os.kill(pair.replicas(*PAIR_REPLICAS)[0], signal.SIGKILL)
            answer = (await asking).raise_for_status().json()
        assert [entry["index"] for entry in answer["data"]] == list(range(len(texts)))
        return np.array([entry["embedding"] for entry in answer["data"]])

    def lost() -> bool:
        """All that it had begun may have ended."""
        pair.eventually(lambda: both_serve(pair))
        before = pair.failovers("before_first_token")
        assert np.abs(asyncio.run(embed(kill=True)) - undisturbed).max() < 1e-5
        return pair.failovers("before_first_token") > before

    undisturbed = asyncio.run(embed(kill=False))
    assert any(lost() for _ in range(MAX_ROUNDS))


def kill_all(processes: list[int]) -> None:
    """None can take a request over before it dies: all are stopped first."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in processes:
            os.kill(pid, number)


async def answers(server: Server, disturb: Callable[[], None]) -> list[str]:
    """Returns what unary answers and streams say.

    `disturb` is called when all streams have begun.
    """
    begun = asyncio.Semaphore(0)
    async with httpx.AsyncClient(base_url=server.url, timeout=600) as client:
        asked = [asyncio.create_task(unary(client, *request)) for request in UNARY]
        asked += [
            asyncio.create_task(streamed(client, *request, begun.release)) for request in STREAMS
        ]
        for _ in STREAMS:
            await begun.acquire()
        await asyncio.to_thread(disturb)
        return await asyncio.gather(*asked)


@pytest.mark.exhaustive  # tests/ingress/fleet/test_channel_life.py: an ingress not heard of
def test_a_dead_ingress_leaves_nothing_running(server: Server) -> None:
    """Its clients have to come again; what it had asked for ends, and the pages are free."""
    [ingress] = server.replicas("openai")

    async def ask(client: httpx.AsyncClient) -> None:
        """Sequences that would take minutes, as few of them run at once."""
        body = {
            "prompt": ["abc"] * 400,
            "max_tokens": 900,
            "ignore_eos": True,
            "stream": True,
        }
        async with client.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for _ in answer.aiter_bytes():
                pass

    def waits() -> bool:
        return server.stats()["waiting_requests"] > 500

    async def ask_and_kill() -> list[object]:
        async with httpx.AsyncClient(timeout=60) as client:
            asked = [asyncio.create_task(ask(client)) for _ in range(2)]
            await asyncio.to_thread(server.eventually, waits)
            os.kill(ingress, signal.SIGKILL)
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(ask_and_kill())
    assert all(isinstance(outcome, httpx.HTTPError) for outcome in answers)
    server.eventually(lambda: server.pages_used() == 0)
    server.eventually(server.is_ready)


@pytest.mark.exhaustive  # tests/ingress/fleet/test_suspects.py: who is taken for the cause
@pytest.mark.timeout(900)
def test_of_all_that_lost_two_replicas_the_one_with_a_grammar_ends(pair: Server) -> None:
    plain = {"model": PAIR, "prompt": "Once", "max_tokens": LONG, "ignore_eos": True}
    bound = {**plain, "ignore_eos": False, "structured_outputs": {"regex": "([a-d]{3} ){610}"}}

    def all_are_lost_twice() -> bool:
        pair.eventually(lambda: both_serve(pair))
        before = pair.failovers()
        suspect, *others = asyncio.run(lost_twice(pair, [bound, plain, plain]))
        if pair.failovers() - before < 5:  # some had ended before the second death
            return False
        error, end = suspect[-2:]
        assert (json.loads(error)["error"]["code"], end) == ("replica_died", "[DONE]")
        assert [lines[-1] for lines in others] == ["[DONE]"] * 2
        return True

    assert any(all_are_lost_twice() for _ in range(MAX_ROUNDS))
    pair.eventually(lambda: both_serve(pair))


async def lost_twice(server: Server, jobs: list[dict[str, Any]]) -> list[list[str]]:
    """The streams' lines. All replicas die when each has begun, and once more when each goes on."""
    moments = [asyncio.Event() for _ in jobs]

    async def read(
        client: httpx.AsyncClient, job: dict[str, Any], came: asyncio.Event
    ) -> list[str]:
        lines: list[str] = []
        async with client.stream("POST", "/v1/completions", json={**job, "stream": True}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    lines.append(line.removeprefix("data: "))
                    came.set()
        came.set()
        return lines

    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        reading = [
            asyncio.create_task(read(client, job, came))
            for job, came in zip(jobs, moments, strict=True)
        ]
        await all_have_come(moments)
        enough = server.failovers() + len(jobs)
        kill_all(server.replicas(*PAIR_REPLICAS))
        await asyncio.to_thread(server.eventually, lambda: server.failovers() >= enough)
        for came in moments:
            came.clear()
        await all_have_come(moments)
        kill_all(server.replicas(*PAIR_REPLICAS))
        return await asyncio.gather(*reading)


async def all_have_come(moments: list[asyncio.Event]) -> None:
    await asyncio.gather(*(came.wait() for came in moments))

"""A replica that really runs out of memory in a step: no answer that fits is lost, and it lives."""

import asyncio
import json
import resource
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import THROUGHPUT, Server

# tests/engine/scheduler/test_recovery.py says it of the engine.
pytestmark = [THROUGHPUT, pytest.mark.exhaustive]

MODEL = ("MantaModel", "model-wide")
MARGIN = 180 << 20  # bytes; less than a step of several prompts takes
LONGEST = 300  # words of 5 tokens
LONGEST_BYTES = LONGEST * 5 << 18  # of its keys and values
SHORT, LARGE = range(4), range(4, 8)


@dataclass
class Seen:
    """All that a client saw of one stream."""

    text: str = ""
    reasons: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        if line.startswith("data: {"):
            said = json.loads(line.removeprefix("data: "))
            if "error" in said:
                self.errors.append(said["error"]["message"])
                return
            [choice] = said["choices"]
            self.text += choice["text"]
            self.reasons += [choice["finish_reason"]] if choice["finish_reason"] else []


@contextmanager
def limited(pid: int, to_bytes: int) -> Iterator[None]:
    """The process may have no more memory than that."""
    before = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (to_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_DATA, before)


def data_bytes(pid: int) -> int:
    """Reads the bytes that the limit counts: the process's own memory that can be written."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


def job(number: int, salt: str) -> dict[str, Any]:
    """Greedy ones, and seeded ones."""
    return {
        "model": "wide",
        "prompt": f"{number}" * (250 if number in LARGE else 20),
        "max_tokens": 6 if number in LARGE else 24,
        "temperature": number % 2 * 0.9,
        "seed": number,
        "ignore_eos": True,
        "cache_salt": salt,
        "stream": True,
    }


async def all_at_once(server: Server) -> list[Seen]:
    """Prompts whose step is large arrive while short sequences are being decoded; nothing of any
    is cached.
    """
    salt = uuid.uuid4().hex
    decoding = asyncio.Semaphore(0)

    async def stream(client: httpx.AsyncClient, number: int) -> Seen:
        seen = Seen()
        request = client.stream("POST", f"{server.url}/v1/completions", json=job(number, salt))
        async with request as answer:
            if answer.status_code != 200:
                raise AssertionError((await answer.aread()).decode())
            lines = answer.aiter_lines()
            seen.take(await anext(lines))
            decoding.release()
            async for line in lines:
                seen.take(line)
        return seen

    async with httpx.AsyncClient(timeout=120) as client:
        short = [asyncio.create_task(stream(client, number)) for number in SHORT]
        for _ in short:
            await decoding.acquire()
        large = [asyncio.create_task(stream(client, number)) for number in LARGE]
        return await asyncio.gather(*short, *large)


def engine_stats(server: Server) -> dict[str, float]:
    """Waits for the stats of the model's only replica.

    It may not tell them while a step takes its cores.
    """
    found: list[dict[str, float]] = []

    def tells() -> bool:
        replicas = server.http.get("/stats").json()["replicas"]
        found[:] = [replica for replica in replicas if replica["model"] == "wide"]
        return bool(found)

    server.eventually(tells)
    return found[0]


def longest(server: Server) -> httpx.Response:
    """Each of its steps needs all of its keys and values, of which most are cached."""
    greedy = {"model": "wide", "temperature": 0, "ignore_eos": True}
    body = {**greedy, "prompt": "long " * LONGEST, "max_tokens": 2}
    return server.http.post("/v1/completions", json=body)


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    said: str = answer.json()["choices"][0]["text"]
    return said


@pytest.fixture(scope="module")
def undisturbed(server: Server) -> list[Seen]:
    return asyncio.run(all_at_once(server))


def bytes_without_the_longest(server: Server, pid: int) -> int:
    """Finds the highest limit at which the longest request fails.

    The limit differs by what allocators keep of earlier steps.
    """
    now = data_bytes(pid)
    for limit in range(now + LONGEST_BYTES, now, -MARGIN // 4):
        with limited(pid, limit):
            answer = longest(server)
        if "error" in answer.json():
            return limit
    raise AssertionError("it needs no memory")


@pytest.mark.timeout(600)
def test_a_step_that_finds_no_memory_costs_nobody_an_answer(
    server: Server, undisturbed: list[Seen]
) -> None:
    assert [seen.reasons for seen in undisturbed] == [["length"]] * len(undisturbed)
    before = engine_stats(server)
    [replica] = server.replicas(*MODEL)
    with limited(replica, data_bytes(replica) + MARGIN):
        assert asyncio.run(all_at_once(server)) == undisturbed
        assert server.http.get("/health").status_code == 200
    after = engine_stats(server)
    assert after["failed_steps"] > before["failed_steps"]
    assert after["retried_rows"] > before["retried_rows"]
    assert server.replicas(*MODEL) == [replica]


@pytest.mark.timeout(600)
def test_only_what_can_not_be_computed_alone_fails(server: Server, undisturbed: list[Seen]) -> None:
    expected = text(longest(server))
    [replica] = server.replicas(*MODEL)

    async def with_the_longest() -> tuple[list[Seen], httpx.Response]:
        others = all_at_once(server)
        return await asyncio.gather(others, asyncio.to_thread(longest, server))

    with limited(replica, bytes_without_the_longest(server, replica)):
        others, answer = asyncio.run(with_the_longest())
        assert server.http.get("/health").status_code == 200
    assert others == undisturbed
    assert answer.status_code in (500, 200)  # where an answer that takes long has begun before
    assert answer.json()["error"]["code"] == "out_of_memory"
    disturbed = engine_stats(server)
    assert text(longest(server)) == expected
    assert asyncio.run(all_at_once(server)) == undisturbed
    assert engine_stats(server)["failed_steps"] == disturbed["failed_steps"] > 0
    assert server.replicas(*MODEL) == [replica]

"""Many clients at once: nothing mixed up, nothing lost, nothing left behind."""

import asyncio
import random

import httpx
import openai

from tests.e2e.server import THROUGHPUT, Server
from tests.effort import tries


def sdk(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300
    )


async def streamed(client: openai.AsyncOpenAI, prompt: str, max_tokens: int) -> str:
    stream = await client.completions.create(
        model="tiny",
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    return "".join([chunk.choices[0].text async for chunk in stream])


@THROUGHPUT
def test_64_streams_on_pages_for_16_say_what_each_says_alone(server: Server) -> None:
    rng = random.Random(5)
    jobs = [
        ("".join(rng.choices("abcdefgh ", k=rng.randint(20, 100))), rng.randint(90, 150))
        for _ in range(64)
    ]

    async def compare(times: int) -> None:
        asked = [(prompt, times * length) for prompt, length in jobs]
        async with sdk(server) as client:
            together = await asyncio.gather(*(streamed(client, *job) for job in asked))
            for job, said in list(zip(asked, together, strict=True))[:: tries(8, 1)]:
                assert await streamed(client, *job) == said

    before = server.stats()
    for times in (1, 3):  # where clients are slow, few of the short ones run at once
        asyncio.run(compare(times))
        assert server.pages_used() == 0
        if server.stats()["preemptions"] > before["preemptions"]:
            return
    raise AssertionError("no stream was preempted")


def all_were_aborted(server: Server, before: dict[str, float]) -> None:
    """Nothing runs, and what came since has not run to its end unread.

    But for a few: a client that is slow to leave may find its answer complete.
    """

    def settled() -> bool:
        """Some may come late to the engine."""
        now = server.stats()
        came = now["total_requests"] - before["total_requests"]
        aborted = now["aborted_requests"] - before["aborted_requests"]
        is_idle = now["active_requests"] == now["waiting_requests"] == server.pages_used() == 0
        return is_idle and came > 0 and aborted > 0.9 * came

    server.eventually(settled)


def test_200_streams_cut_after_the_first_chunk_leave_no_page_in_use(server: Server) -> None:
    async def cut(client: openai.AsyncOpenAI, number: int) -> None:
        stream = await client.completions.create(
            model="tiny",
            prompt=f"{number} " * 10,
            max_tokens=1500,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        await anext(aiter(stream))
        await stream.close()

    async def cut_all() -> None:
        async with sdk(server) as client:
            await asyncio.gather(*(cut(client, number) for number in range(200)))

    before = server.stats()
    asyncio.run(cut_all())
    all_were_aborted(server, before)


def test_clients_that_leave_at_any_moment_leave_no_page_in_use(server: Server) -> None:
    async def leave(client: httpx.AsyncClient, seconds: float, stream: bool) -> None:
        # More than anybody waits for, on a fast machine too.
        body = {"prompt": f"{seconds}", "max_tokens": 2000, "stream": stream, "ignore_eos": True}
        try:
            async with asyncio.timeout(seconds):
                await client.post(f"{server.url}/v1/completions", json=body)
        except TimeoutError:
            return

    async def leave_all(within_s: float) -> None:
        rng = random.Random(9)
        async with httpx.AsyncClient(timeout=60) as client:
            await asyncio.gather(
                *(leave(client, rng.uniform(0.002, within_s), n % 2 == 0) for n in range(60))
            )

    before = server.stats()
    for within_s in (2.0, 10.0, 50.0):  # on a busy machine all may leave before any has come
        asyncio.run(leave_all(within_s))
        if server.stats()["total_requests"] > before["total_requests"]:
            break
    all_were_aborted(server, before)


def test_two_requests_at_once_hold_a_shared_prefix_once(server: Server) -> None:
    rng = random.Random(3)

    async def run(prefix: str) -> tuple[int, int, int]:
        """How many ran at one moment, the pages that they held, and tokens that were found."""
        async with sdk(server) as client:

            async def ask(tail: str) -> openai.AsyncStream[openai.types.Completion]:
                return await client.completions.create(
                    model="tiny",
                    prompt=prefix + tail,
                    max_tokens=450,
                    temperature=0,
                    stream=True,
                    stream_options={"include_usage": True},
                    extra_body={"ignore_eos": True},
                )

            first = await ask("x")
            await anext(aiter(first))
            second = await ask("y")
            await anext(aiter(second))
            stats = server.http.get("/stats").json()
            chunks = [chunk async for chunk in second]
            await first.close()
            usage = chunks[-1].usage
            assert usage is not None
            assert usage.prompt_tokens_details is not None
            cached = usage.prompt_tokens_details.cached_tokens or 0
            used = sum(replica["pages_used"] for replica in stats["replicas"])
            return stats["active_requests"], used, cached

    running = 0
    while running < 2:  # on a busy machine they may have ended before the look at them
        running, used, cached = asyncio.run(run("".join(rng.choices("abcdefghij ", k=1000))))
        assert cached == 1000 // 16 * 16
    assert 1000 // 16 <= used < 2 * (1000 // 16), "the prefix is held twice"

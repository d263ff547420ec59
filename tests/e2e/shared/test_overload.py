"""More than a model can take: what is too much is told so, and the rest is answered."""

import asyncio

import httpx

from tests.e2e.server import THROUGHPUT, Server

pytestmark = THROUGHPUT


def test_what_is_too_much_is_refused_and_what_is_accepted_finishes(server: Server) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
        body = {"model": "narrow", "prompt": f"{number}", "max_tokens": 200, "ignore_eos": True}
        return await client.post(f"{server.url}/v1/completions", json=body, timeout=120)

    async def run(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> str:
        """The last line of a stream that has a slot from its first line on."""
        body = {"model": "narrow", "prompt": "x", "max_tokens": 2000, "ignore_eos": True}
        url, lines = f"{server.url}/v1/completions", list[str]()
        streamed = client.stream("POST", url, json={**body, "stream": True}, timeout=120)
        async with streamed as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    lines.append(line)
                    begun.release()
        return lines[-1]

    async def ask_all() -> tuple[list[str], list[httpx.Response]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits) as client:
            begun = [asyncio.Semaphore(0) for _ in range(2)]
            running = [asyncio.create_task(run(client, semaphore)) for semaphore in begun]
            for semaphore in begun:
                await semaphore.acquire()
            answers = await asyncio.gather(*(ask(client, number) for number in range(38)))
            return await asyncio.gather(*running), answers

    ends, answers = asyncio.run(ask_all())
    assert ends == ["data: [DONE]"] * 2
    # The status of a refusal is 200 where an answer that takes long has begun before.
    refused = [answer for answer in answers if "error" in answer.json()]
    served = [answer for answer in answers if "error" not in answer.json()]
    assert refused
    assert {answer.status_code for answer in refused} <= {429, 200}
    assert all(answer.status_code == 200 for answer in served)
    assert all(answer.json()["error"]["code"] == "overloaded" for answer in refused)
    assert all(answer.headers["retry-after"] for answer in refused if answer.status_code != 200)
    assert len(served) >= 4  # wait beside the two that run
    assert all(answer.json()["usage"]["completion_tokens"] == 200 for answer in served)
    server.eventually(lambda: server.pages_used() == 0)

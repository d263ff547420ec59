"""A server that is killed amid writes loses no message that it said is stored."""

import asyncio
import itertools
import socket
from collections.abc import Iterator

import httpx

from tests.databases import opened
from tests.effort import tries
from tests.forking import FORKING
from tests.store.talking import CHAT, everything, identifier
from tests.web.api.server import serve
from tests.web.api.serving import NEW, chat_body, message_body

EVERYBODY = ""  # the owner without keys
N_WRITERS = 4


class Killed:
    """Writes of several clients to a server that is killed while some of them are on their way."""

    def __init__(self, url: str, numbers: Iterator[int]) -> None:
        self._url = url
        self._numbers = numbers
        self.acknowledged = set[str]()

    async def round(self, n_writes: int) -> None:
        """One life of the server: it ends after so many acknowledged messages."""
        before, enough = len(self.acknowledged), asyncio.Event()

        async def write(client: httpx.AsyncClient) -> None:
            for number in self._numbers:
                sent = {"messages": [message_body(number)]}
                try:
                    answer = await client.post(f"/ui/api/chats/{CHAT}/messages", json=sent)
                except httpx.TransportError:
                    return
                assert answer.status_code == 200, answer.text
                self.acknowledged.add(identifier(number))
                if len(self.acknowledged) - before >= n_writes:
                    enough.set()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            base = f"http://127.0.0.1:{listener.getsockname()[1]}"
            server = FORKING.Process(target=serve, args=(self._url, listener))
            server.start()
        try:
            async with httpx.AsyncClient(base_url=base, timeout=120) as client:
                await client.put(f"/ui/api/chats/{CHAT}", json=chat_body(), headers=NEW)
                writers = [asyncio.create_task(write(client)) for _ in range(N_WRITERS)]
                reached = asyncio.create_task(enough.wait())
                await asyncio.wait([reached, *writers], return_when=asyncio.FIRST_COMPLETED)
                server.kill()
                await asyncio.gather(*writers)
        finally:
            server.kill()
            server.join()


def test_a_killed_server_loses_nothing_that_it_acknowledged(url: str) -> None:
    async def run() -> None:
        killed = Killed(url, itertools.count(1))
        for number in range(tries(3, 20)):
            await killed.round(n_writes=5 + number)
            async with opened(url) as store:
                found = {message["id"] for message in (await everything(store, EVERYBODY))[1]}
            assert killed.acknowledged <= found

    asyncio.run(run())

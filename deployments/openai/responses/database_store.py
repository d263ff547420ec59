"""Responses and conversations in the database of an operator's choice, which replicas share."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from deployments.ingress.off_loop import Turns
from deployments.serving.detached_tasks import to_its_end
from deployments.store.database import (
    CONNECTIONS,
    NO_STORE,
    WRITERS,
    StoreError,
    default_url,
    open_once,
    shown,
    store_url,
)
from deployments.store.failures import OutOfReach, out_of_reach
from deployments.store.items import Choose, NewResponse, Recalled, Reserve, StoredItem, Wanted
from deployments.store.limits import KeptLimits
from deployments.store.store import KeptStore

logger = logging.getLogger(__name__)

RETRY_S = 5.0  # after the database could not be opened or reached
LIMITS = KeptLimits()

ValueT = TypeVar("ValueT")
Call = Callable[[KeptStore], Coroutine[Any, Any, ValueT]]


class DatabaseStore:
    """Belongs to one event loop. The database is opened when it is needed first: without it all
    else is still answered.
    """

    def __init__(self, url: str | None, limits: KeptLimits = LIMITS) -> None:
        """`url`: None for a file in the user's data folder."""
        self._given = url
        self._limits = limits
        self._kept: KeptStore | None = None
        self._opening = asyncio.Lock()
        self._failed_at = float("-inf")
        self._reads = Turns(CONNECTIONS - WRITERS)
        self._writes = Turns(WRITERS)

    def for_owner(self, owner: str, client: str) -> "ResponsesInDatabase":
        return ResponsesInDatabase(self, owner, client)

    async def read(self, client: str, call: Call[ValueT]) -> ValueT:
        """Has `call` read the store. Clients that wait are served in turn. Raises Refused."""
        return await self._work(self._reads, client, call)

    async def write(self, client: str, call: Call[ValueT]) -> ValueT:
        """Has `call` write, beside what reads: readers do not wait for a write that waits."""
        return await self._work(self._writes, client, call)

    async def _work(self, turns: Turns, client: str, call: Call[ValueT]) -> ValueT:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turns.turn(client))
            kept = await self._opened()
            turn = stack.pop_all()  # until the work has ended, though its client may leave before

        async def in_turn() -> ValueT:
            async with turn:
                self._check()  # it may have failed meanwhile
                try:
                    return await call(kept)
                except OutOfReach:
                    self._failed_at = time.monotonic()
                    raise

        return await to_its_end(in_turn())

    async def close(self) -> None:
        if self._kept is not None:
            await self._kept.close()
            self._kept = None

    async def _opened(self) -> KeptStore:
        async with self._opening:
            self._check()
            if self._kept is None:
                try:
                    url = default_url() if self._given is None else self._given
                    await asyncio.to_thread(open_once, url)
                except StoreError as error:
                    self._failed_at = time.monotonic()
                    logger.error("Responses can't be stored: %s", error)
                    raise out_of_reach() from error
                self._kept = KeptStore(store_url(url), self._limits)
                logger.info("Responses are stored in %s", shown(store_url(url)))
            return self._kept

    def _check(self) -> None:
        """Nobody waits again at once for a database that did not answer. Raises Refused."""
        if time.monotonic() < self._failed_at + RETRY_S:
            raise out_of_reach()


@dataclass(frozen=True, slots=True)
class ResponsesInDatabase:
    """The responses of one owner, for one client."""

    store: DatabaseStore
    owner: str
    client: str

    async def recall(self, wanted: Wanted, reserve: Reserve) -> Recalled:
        return await self.store.read(
            self.client, lambda kept: kept.responses.recall(self.owner, wanted, reserve)
        )

    async def put(self, new: NewResponse) -> bool:
        return await self.store.write(self.client, lambda kept: kept.responses.put(self.owner, new))

    async def body(self, response_id: str) -> bytes | None:
        return await self.store.read(
            self.client, lambda kept: kept.responses.body(self.owner, response_id)
        )

    async def delete(self, response_id: str) -> bool:
        return await self.store.write(
            self.client, lambda kept: kept.responses.delete(self.owner, response_id)
        )

    async def input_items(self, response_id: str, choose: Choose) -> list[StoredItem] | None:
        return await self.store.read(
            self.client,
            lambda kept: kept.responses.input_items(self.owner, response_id, choose),
        )


def store_at(url: str | None) -> DatabaseStore | None:
    """`url`: NO_STORE, or as that of a DatabaseStore."""
    return None if url == NO_STORE else DatabaseStore(url)

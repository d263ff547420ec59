"""An owner's row: what it has stored, and its lock, which puts the owner's writers in line.

Whoever waits for changes of an owner is woken by writes of this process, and by a look for others'.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.contract.errors import Refused
from deployments.serving.detached_tasks import create_detached_task
from deployments.store.database import Database, locked_row
from deployments.store.limits import StoreLimits, storage_full
from deployments.store.tables import OWNER

LOOK_S = 1.0  # between looks for writes of other processes: one query for all who wait


class Waits:
    def __init__(self, database: Database, look_s: float = LOOK_S) -> None:
        self._database = database
        self._look_s = look_s
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def waiting(self, owner: str) -> Iterator[asyncio.Event]:
        """The event is set by each change that is committed from now on."""
        event = asyncio.Event()
        self._waiting[owner].add(event)
        if self._looking is None or self._looking.done():
            self._looking = create_detached_task(self._look())
        try:
            yield event
        finally:
            self._waiting[owner].discard(event)
            if not self._waiting[owner]:
                del self._waiting[owner]

    def wake(self, owner: str) -> None:
        for event in self._waiting.get(owner, ()):
            event.set()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        """Looks for changes while anybody waits."""
        known: dict[str, int] = {}
        while self._waiting:
            try:
                now = await self._revisions()
            except Refused:  # logged; the database may come back
                now = known
            for owner, revision in now.items():
                # What was not looked at before may have changed since its reader began to wait.
                if known.get(owner) != revision:
                    self.wake(owner)
            known = now
            await asyncio.sleep(self._look_s)

    async def _revisions(self) -> dict[str, int]:
        owners = list(self._waiting)
        async with self._database.reading() as connection:
            query = select(OWNER.c.id, OWNER.c.revision).where(OWNER.c.id.in_(owners))
            return {row.id: row.revision for row in await connection.execute(query)}


@dataclass(frozen=True, slots=True)
class OwnerState:
    """`swept`: the highest revision of a tombstone that is no longer there."""

    revision: int = 0
    n_bytes: int = 0
    swept: int = 0


@dataclass(slots=True)
class OwnerWrite:
    """One transaction of one owner, which holds the owner's row."""

    connection: AsyncConnection
    owner: str
    revision: int
    n_bytes: int
    swept: int
    limits: StoreLimits

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def grow(self, n_bytes: int) -> None:
        """Raises Refused if that is more than the owner may store."""
        self.n_bytes += n_bytes
        if n_bytes > 0 and self.n_bytes > self.limits.max_owner_bytes:
            raise storage_full(self.limits.max_owner_bytes)


class Owners:
    def __init__(self, database: Database, limits: StoreLimits, waits: Waits) -> None:
        self._database = database
        self._limits = limits
        self._waits = waits

    async def state(self, owner: str) -> OwnerState:
        async with self._database.reading(owner) as connection:
            return await read_state(connection, owner)

    @asynccontextmanager
    async def writing(self, owner: str) -> AsyncIterator[OwnerWrite]:
        """A transaction, committed at the end. Who waits for the owner's changes hears of them."""
        async with self._database.writing(owner) as connection:
            found = await locked_row(connection, OWNER, OWNER.c.id, owner)
            before = OwnerState(found["revision"], found["bytes"], found["swept"])
            write = OwnerWrite(
                connection, owner, before.revision, before.n_bytes, before.swept, self._limits
            )
            yield write
            after = OwnerState(write.revision, write.n_bytes, write.swept)
            if after != before:
                changed = {"revision": after.revision, "bytes": after.n_bytes, "swept": after.swept}
                await connection.execute(update(OWNER).where(OWNER.c.id == owner).values(**changed))
        if after.revision != before.revision:
            self._waits.wake(owner)


async def read_state(connection: AsyncConnection, owner: str) -> OwnerState:
    query = select(OWNER.c.revision, OWNER.c.bytes, OWNER.c.swept).where(OWNER.c.id == owner)
    found = (await connection.execute(query)).one_or_none()
    return OwnerState() if found is None else OwnerState(*found)

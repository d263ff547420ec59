"""An owner's row: what it has stored, and its lock, which puts the owner's writers in line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.store.database import Database, locked_row
from deployments.store.limits import StoreLimits, storage_full
from deployments.store.tables import OWNER
from deployments.store.waits import Waits


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

"""Ends tombstones after their time, and files that no message came for: a bounded bit at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from sqlalchemy import Column, ColumnElement, Table, and_, delete, select

from deployments.contract.errors import Refused
from deployments.store.database import Database
from deployments.store.failures import OUR_FAULTS
from deployments.store.files import drop_unused, is_used
from deployments.store.limits import ROW_BYTES
from deployments.store.owners import Owners, OwnerWrite
from deployments.store.tables import CHAT, FILE, MESSAGE

logger = logging.getLogger(__name__)

DAY_MS = 24 * 3600 * 1000
TOMBSTONE_MS = 90 * DAY_MS
UNUSED_FILE_MS = DAY_MS  # a file may come before its message
SWEEP_S = 3600.0
MAX_ROWS = 500  # in one transaction

End = Callable[[OwnerWrite], Awaitable[int]]


class Sweep:
    def __init__(self, database: Database, owners: Owners, max_rows: int = MAX_ROWS) -> None:
        self._database = database
        self._owners = owners
        self._max_rows = max_rows

    async def forever(self, now_ms: Callable[[], int]) -> None:
        while True:
            try:
                await self.all(now_ms())
            except Refused:  # logged; the database may come back
                pass
            except Exception:  # a fault must not end the sweeping
                logger.exception("the store could not be swept")
            await asyncio.sleep(SWEEP_S)

    async def all(self, now_ms: int) -> int:
        """The number of rows that went. Raises Refused."""
        n_rows, old = 0, now_ms - TOMBSTONE_MS
        for table in (MESSAGE, CHAT):
            end = partial(self._end_tombstones, table, old)
            n_rows += await self._of_each(table.c.owner, table.c.deleted_at < old, end)
        unused = and_(FILE.c.created_at < now_ms - UNUSED_FILE_MS, ~is_used())
        return n_rows + await self._of_each(FILE.c.owner, unused, partial(self._end_files, unused))

    async def _of_each(self, owners: Column[str], where: ColumnElement[bool], end: End) -> int:
        n_rows, following = 0, where
        while (owner := await self._first(owners, following)) is not None:
            n_rows += await self._of(owner, end)
            following = and_(where, owners > owner)
        return n_rows

    async def _first(self, owners: Column[str], where: ColumnElement[bool]) -> str | None:
        async with self._database.reading() as connection:
            query = select(owners).where(where).order_by(owners).limit(1)
            return (await connection.execute(query)).scalar_one_or_none()

    async def _of(self, owner: str, end: End) -> int:
        """One that fails does not keep the others from their turn."""
        n_rows, n_last = 0, 1
        try:
            while n_last:
                async with self._owners.writing(owner) as write:
                    n_last = await end(write)
                n_rows += n_last
        except Refused:  # logged
            pass
        except OUR_FAULTS:
            logger.exception("what an owner deleted could not be swept")
        return n_rows

    async def _end_tombstones(self, table: Table, old: int, write: OwnerWrite) -> int:
        """Readers that have not seen them yet must begin anew."""
        mine = and_(table.c.owner == write.owner, table.c.deleted_at < old)
        query = select(table.c.revision).where(mine).order_by(table.c.revision)
        found = (await write.connection.execute(query.limit(self._max_rows))).scalars().all()
        if found:
            await write.connection.execute(delete(table).where(mine, table.c.revision <= found[-1]))
            write.swept = max(write.swept, found[-1])
            write.grow(-ROW_BYTES * len(found))
        return len(found)

    async def _end_files(self, unused: ColumnElement[bool], write: OwnerWrite) -> int:
        query = select(FILE.c.sha256).where(FILE.c.owner == write.owner, unused)
        found = (await write.connection.execute(query.limit(self._max_rows))).scalars().all()
        await drop_unused(write, found)
        return len(found)

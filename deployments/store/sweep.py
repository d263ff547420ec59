"""Ends tombstones after their time, and files that no message came for: a bounded bit at a time."""

import asyncio
import logging
from collections.abc import Callable

from sqlalchemy import ColumnElement, Select, Table, and_, delete, exists, select

from deployments.store.database import Database
from deployments.store.files import drop_unused
from deployments.store.limits import ROW_BYTES
from deployments.store.owners import Owners, OwnerWrite
from deployments.store.tables import ATTACHMENT, CHAT, FILE, MESSAGE

logger = logging.getLogger(__name__)

DAY_MS = 24 * 3600 * 1000
TOMBSTONE_MS = 90 * DAY_MS
UNUSED_FILE_MS = DAY_MS  # a file may come before its message
SWEEP_S = 3600.0
MAX_ROWS = 500  # in one transaction


class Sweep:
    def __init__(self, database: Database, owners: Owners, max_rows: int = MAX_ROWS) -> None:
        self._database = database
        self._owners = owners
        self._max_rows = max_rows

    async def forever(self, now_ms: Callable[[], int]) -> None:
        while True:
            try:
                while await self.once(now_ms()):
                    pass
            except Exception:  # the database may come back
                logger.exception("the store could not be swept")
            await asyncio.sleep(SWEEP_S)

    async def once(self, now_ms: int) -> int:
        """The number of rows that went, of one owner; 0 when there is no more to do."""
        old = now_ms - TOMBSTONE_MS
        for table in (MESSAGE, CHAT):
            owner = await self._first(select(table.c.owner).where(table.c.deleted_at < old))
            if owner is not None:
                async with self._owners.writing(owner) as write:
                    return await self._end_tombstones(write, table, old)
        unused = and_(FILE.c.created_at < now_ms - UNUSED_FILE_MS, ~_used())
        owner = await self._first(select(FILE.c.owner).where(unused))
        if owner is None:
            return 0
        async with self._owners.writing(owner) as write:
            query = select(FILE.c.sha256).where(FILE.c.owner == owner, unused)
            found = (await write.connection.execute(query.limit(self._max_rows))).scalars().all()
            await drop_unused(write, found)
            return len(found)

    async def _first(self, query: Select[str]) -> str | None:
        async with self._database.reading() as connection:
            return (await connection.execute(query.limit(1))).scalar_one_or_none()

    async def _end_tombstones(self, write: OwnerWrite, table: Table, old: int) -> int:
        """Readers that have not seen them yet must begin anew."""
        mine = and_(table.c.owner == write.owner, table.c.deleted_at < old)
        query = select(table.c.revision).where(mine).order_by(table.c.revision)
        found = (await write.connection.execute(query.limit(self._max_rows))).scalars().all()
        if found:
            await write.connection.execute(delete(table).where(mine, table.c.revision <= found[-1]))
            write.swept = max(write.swept, found[-1])
            write.grow(-ROW_BYTES * len(found))
        return len(found)


def _used() -> ColumnElement[bool]:
    return exists().where(ATTACHMENT.c.owner == FILE.c.owner, ATTACHMENT.c.sha256 == FILE.c.sha256)

"""Who waits for changes of an owner: writes of this process wake it, and a look for others'."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import select

from deployments.contract.errors import Refused
from deployments.serving.detached_tasks import create_detached_task
from deployments.store.database import Database
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

"""The stores of what owners keep on the server: their chats and files, and what OpenAI's protocol
keeps for them.
"""

import asyncio

from sqlalchemy.engine import URL

from deployments.serving.detached_tasks import create_detached_task
from deployments.store.changes import Changes
from deployments.store.chats import Chats, now_ms
from deployments.store.conversations import Conversations
from deployments.store.database import Database
from deployments.store.files import Files
from deployments.store.kept import KeptOwners
from deployments.store.limits import KeptLimits, StoreLimits
from deployments.store.owners import Owners, Waits
from deployments.store.responses import Responses
from deployments.store.sweep import Sweep


class Store:
    """Chats and files. It belongs to the event loop that it is made in; its tables are there: see
    `open_once`.
    """

    def __init__(self, url: URL, limits: StoreLimits) -> None:
        self.limits = limits
        self.database = Database(url)
        self.waits = Waits(self.database)
        self.owners = Owners(self.database, limits, self.waits)
        self.chats = Chats(self.owners, limits)
        self.files = Files(self.database, self.owners)
        self.changes = Changes(self.database)
        self.sweep = Sweep(self.database, self.owners)
        self._sweeping: asyncio.Task[None] | None = None

    def begin_sweeping(self) -> None:
        self._sweeping = create_detached_task(self.sweep.forever(now_ms))

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self.waits.close()
        await self.database.close()


class KeptStore:
    """Responses and conversations of OpenAI's protocol. It belongs to the event loop that it is
    made in; its tables are there: see `open_once`.
    """

    def __init__(self, url: URL, limits: KeptLimits) -> None:
        self._database = Database(url)
        owners = KeptOwners(self._database)
        self.responses = Responses(self._database, owners, limits)
        self.conversations = Conversations(self._database, owners, limits)

    async def close(self) -> None:
        await self._database.close()

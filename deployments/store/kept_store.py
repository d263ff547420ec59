"""The store of what OpenAI's protocol keeps: responses and conversations."""

from sqlalchemy.engine import URL

from deployments.store.conversations import Conversations
from deployments.store.database import Database
from deployments.store.kept import KeptOwners
from deployments.store.limits import KeptLimits
from deployments.store.responses import Responses


class KeptStore:
    """Belongs to the event loop that it is made in. Its tables are there: see `open_once`."""

    def __init__(self, url: URL, limits: KeptLimits) -> None:
        self._database = Database(url)
        owners = KeptOwners(self._database)
        self.responses = Responses(self._database, owners, limits)
        self.conversations = Conversations(self._database, owners, limits)

    async def close(self) -> None:
        await self._database.close()

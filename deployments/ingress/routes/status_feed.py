"""Changes of the models' states for all watchers of a process, from one long poll."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.model_status import ModelStatus
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.sse import EVENT_STREAM
from deployments.ingress.routes.model_status import status_events
from deployments.serving.detached_tasks import create_detached_task
from deployments.serving.fair_share import FairShare

MAX_WATCHERS = 256
POLL_TIMEOUT_S = 10.0
RETRY_DELAY_S = 1.0  # before a router that did not answer is asked again


class StatusFeed:
    """Belongs to one event loop; asks only while somebody watches."""

    def __init__(self, cluster: Cluster, keep_alive_s: float) -> None:
        self._cluster = cluster
        self._keep_alive_s = keep_alive_s
        self._watchers: dict[asyncio.Event, str] = {}
        self._shares = FairShare(MAX_WATCHERS)
        self._statuses: Sequence[ModelStatus] = ()
        self._known = False
        self._polling: asyncio.Task[None] | None = None

    def watch(self, client: str) -> AsyncIterator[bytes]:
        """Events: first all states, then changes. Raises Refused for too many watchers."""
        if self._shares.is_full or self._shares.is_used_up(client):
            raise Refused.of_kind(ErrorKind.OVERLOADED, "Too many clients watch the models")
        return self._events(client)

    async def _events(self, client: str) -> AsyncIterator[bytes]:
        changed = asyncio.Event()
        self._enter(changed, client)
        seen: Sequence[ModelStatus] = ()
        try:
            while True:
                statuses = self._statuses if self._known else seen
                if events := b"".join(status_events(seen, statuses)):
                    yield events
                seen = statuses
                try:
                    async with asyncio.timeout(self._keep_alive_s):
                        await changed.wait()
                except TimeoutError:
                    yield EVENT_STREAM.keep_alive
                changed.clear()
        finally:
            self._leave(changed)

    def _enter(self, changed: asyncio.Event, client: str) -> None:
        self._watchers[changed] = client
        self._shares.acquire(client)
        if self._polling is None:
            self._polling = create_detached_task(self._poll())

    def _leave(self, changed: asyncio.Event) -> None:
        self._shares.release(self._watchers.pop(changed))
        if not self._watchers and self._polling is not None:
            self._polling.cancel()
            self._polling = None
            self._known = False

    async def _poll(self) -> None:
        version = -1  # lower than any version of the router
        while True:
            try:
                version, statuses = await self._cluster.changes(version, POLL_TIMEOUT_S)
            except Refused:
                version = -1
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            self._statuses, self._known = statuses, True
            for changed in self._watchers:
                changed.set()

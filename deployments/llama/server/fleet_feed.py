"""The state of the fleet for all who watch it, from one poll of the router and the ingresses."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.ingress.error_bodies import llama_envelope
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.clients import connection_of
from deployments.ingress.http.errors import internal_error, public_error
from deployments.ingress.http.openapi import EVENTS, DocumentedRoute
from deployments.ingress.http.sse import EVENT_STREAM, data, encode
from deployments.ingress.metrics import Latencies
from deployments.ingress.settings import IngressSettings
from deployments.llama.server.fleet_readings import FleetReading, Readings
from deployments.serving.detached_tasks import create_detached_task
from deployments.serving.fair_share import FairShare

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 2.0
MAX_READING_AGE_S = 1.0  # of what a single request is answered with
MAX_WATCHERS = 256
INGRESSES = ("openai", "anthropic", "llama")  # applications, and the deployments in them
Waits = list[tuple[str, dict[str, Latencies]]]


class FleetFeed:
    """Belongs to one event loop; polls only while somebody watches."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readings = Readings()
        self._read_at = float("-inf")
        self._reading: asyncio.Task[bytes] | None = None
        self._latest = b""  # JSON
        self._watchers: dict[asyncio.Queue[bytes], str] = {}
        self._shares = FairShare(MAX_WATCHERS)
        self._polling: asyncio.Task[None] | None = None

    async def latest(self) -> bytes:
        """The JSON of a reading that is not older than MAX_READING_AGE_S. Raises Refused."""
        if time.monotonic() - self._read_at < MAX_READING_AGE_S:
            return self._latest
        if self._reading is None or self._reading.done():  # one for all that ask
            self._reading = create_detached_task(self._read())
        return await asyncio.shield(self._reading)

    def watch(self, client: str) -> AsyncGenerator[bytes, None]:
        """Events: the fleet as it is, every POLL_INTERVAL_S. Raises Refused for too many."""
        if self._shares.is_full or self._shares.is_used_up(client):
            raise Refused.of_kind(ErrorKind.OVERLOADED, "Too many clients watch the fleet")
        return self._events(client)

    async def _events(self, client: str) -> AsyncGenerator[bytes, None]:
        frames: asyncio.Queue[bytes] = asyncio.Queue(1)  # who reads slowly gets the newest only
        self._enter(frames, client)
        try:
            while True:
                yield await frames.get()
        finally:
            self._leave(frames)

    def _enter(self, frames: asyncio.Queue[bytes], client: str) -> None:
        self._watchers[frames] = client
        self._shares.acquire(client)
        if self._polling is None:
            self._polling = create_detached_task(self._poll())
        elif self._latest:
            frames.put_nowait(data(self._latest))

    def _leave(self, frames: asyncio.Queue[bytes]) -> None:
        self._shares.release(self._watchers.pop(frames))
        if not self._watchers and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _poll(self) -> None:
        while True:
            began = time.monotonic()
            try:
                payload = await self.latest()
            except Refused as refusal:
                payload = _error(refusal.error)
            except Exception as failure:
                logger.exception("a poll of the fleet")
                payload = _error(internal_error(failure))
            for frames in self._watchers:
                if frames.full():
                    frames.get_nowait()
                frames.put_nowait(data(payload))
            await asyncio.sleep(max(0.0, began + POLL_INTERVAL_S - time.monotonic()))

    async def _read(self) -> bytes:
        asked = (self._cluster.broadcast(ingress, ingress, "latencies") for ingress in INGRESSES)
        fleet, answers = await asyncio.gather(self._cluster.fleet(), asyncio.gather(*asked))
        latencies = {
            replica: by_model
            for answer in cast(Sequence[Waits], answers)
            for replica, by_model in answer
        }
        self._read_at = time.monotonic()
        self._readings.add(
            FleetReading(at=self._read_at, time=time.time(), fleet=fleet, latencies=latencies)
        )
        self._latest = encode(self._readings.described())
        return self._latest


def _error(error: RequestError) -> bytes:
    _, body = llama_envelope(public_error(error, "the fleet"), "")
    return encode(body)


def fleet_routes(cluster: Cluster, settings: IngressSettings) -> list[Route]:
    feed = FleetFeed(cluster)

    async def show(request: Request) -> Response:
        return Response(await feed.latest(), media_type="application/json")

    async def follow(request: Request) -> Response:
        client = connection_of(request, sees_peers=settings.sees_peers)
        return StreamingResponse(feed.watch(client), headers=EVENT_STREAM.headers)

    return [
        DocumentedRoute("/fleet", show, methods=["GET"], name="fleet", tag="Server"),
        DocumentedRoute(
            "/fleet/sse",
            follow,
            methods=["GET"],
            name="follow_fleet",
            tag="Server",
            media_types=(EVENTS,),
        ),
    ]

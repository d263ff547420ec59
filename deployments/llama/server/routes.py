"""The routes of the server as a whole: health, statistics, metrics, models, documentation."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from deployments.contract.errors import Refused
from deployments.contract.model_status import ModelStatus
from deployments.contract.replica_status import ReplicaState, ReplicaStatus
from deployments.ingress.fleet.cluster import UP_STATES, Cluster, card_if_up
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.routes.health import health_route
from deployments.llama.server.metric_names import llamacpp_families
from deployments.model.settings import MODEL_DEPLOYMENT
from deployments.serving.detached_tasks import create_detached_task
from deployments.telemetry.metric_families import CONTENT_TYPE, MetricFamily, render

# Applications and deployments that have metrics, beside the models.
KEEPERS = (
    ("openai", "openai"),
    ("anthropic", "anthropic"),
    ("llama", "llama"),
    ("router", "Router"),
)
WEB = ("web", "web")  # application and deployment of the chat page
PAGE_KNOWN_S = 5.0  # so that who asks for the address again and again asks no replica each time
Part = tuple[Mapping[str, str], list[MetricFamily]]  # a replica's labels and metrics
TOTALS = (
    "active_requests",
    "waiting_requests",
    "total_requests",
    "aborted_requests",
    "tokens_generated",
    "preemptions",
)


class ServerRoutes:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._page = PageLookup(cluster)
        self._started = {"process-start-time-unix": str(int(time.time()))}

    def routes(self) -> list[Route]:
        return [
            health_route(self._cluster, "/health"),
            Route("/", self.welcome, include_in_schema=False),
            Route("/stats", self.stats),
            DocumentedRoute(
                "/metrics",
                self.metrics,
                methods=["GET"],
                name="metrics",
                tag="Server",
                media_types=["text/plain"],
            ),
            Route("/dynamo/alpha/list-models", self.list_models),
        ]

    async def welcome(self, request: Request) -> Response:
        """The page at the server's address: for chats, where there is one."""
        # Relative, because a proxy may add a path prefix.
        if not await self._page.is_served():
            return RedirectResponse("docs")
        query = request.url.query  # `?q=`: what browsers ask a search engine of theirs
        return RedirectResponse(f"ui/?{query}" if query else "ui/")

    async def stats(self, request: Request) -> Response:
        """Statistics of all replicas together, and of each."""
        up = [pair for pair in (await self._cluster.fleet()).models if pair[0].state in UP_STATES]
        answers = await asyncio.gather(
            *(self._cluster.broadcast(m.application, MODEL_DEPLOYMENT, "stats") for m, _ in up)
        )
        found = [
            (_known(replica_id, model, replicas), stats)
            for (model, replicas), of_model in zip(up, answers, strict=True)
            for replica_id, stats in cast(list[tuple[str, dict[str, float]]], of_model)
        ]
        total: dict[str, float] = {key: sum(stats[key] for _, stats in found) for key in TOTALS}
        pages = sum(stats["pages_total"] for _, stats in found)
        used = sum(stats["pages_used"] for _, stats in found)
        total["cache_usage"] = used / pages if pages else 0.0
        return JSONResponse({**total, "replicas": [{**known, **stats} for known, stats in found]})

    async def metrics(self, request: Request) -> Response:
        """Prometheus text of the whole graph."""
        # Concurrently, so that a router that hangs does not exceed the scraper's timeout.
        parts = chain(*await asyncio.gather(self._samples(KEEPERS), self._of_models()))
        body = render(part for own in parts for part in (own, _in_llama_servers_names(own)))
        return Response(body, headers=self._started, media_type=CONTENT_TYPE)

    async def _of_models(self) -> list[Part]:
        with suppress(Refused):  # without a router the ingresses still have metrics
            up = [s for s in await self._cluster.statuses() if s.state in UP_STATES]
            return await self._samples((s.application, MODEL_DEPLOYMENT) for s in up)
        return []

    async def _samples(self, sources: Iterable[tuple[str, str]]) -> list[Part]:
        """The samples of all replicas of the applications' deployments."""
        answers = await asyncio.gather(
            *(self._cluster.broadcast(*source, "samples") for source in sources)
        )
        return cast(list[Part], [part for of_source in answers for part in of_source])

    async def list_models(self, request: Request) -> Response:
        """Dynamo's two lists of names of loaded models; chat models have a template."""
        statuses = await self._cluster.statuses()
        found = await asyncio.gather(*(card_if_up(self._cluster, status) for status in statuses))
        cards = [card for card in found if card is not None]
        return JSONResponse(
            {
                "chat_completion_models": [card.name for card in cards if card.chat_template],
                "completion_models": [card.name for card in cards],
            }
        )


class PageLookup:
    """Whether the application `web` runs: asked of it, once for all who want to know."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: asyncio.Task[list[object]] | None = None
        self._expires = 0.0

    async def is_served(self) -> bool:
        now = time.monotonic()
        if self._asked is None or (self._asked.done() and now >= self._expires):
            self._asked = create_detached_task(self._cluster.broadcast(*WEB, "is_up"))
            self._expires = now + PAGE_KNOWN_S
        return bool(await asyncio.shield(self._asked))


def _known(
    replica_id: str, model: ModelStatus, replicas: Iterable[ReplicaStatus]
) -> Mapping[str, object]:
    """Returns the fields that identify a replica.

    The router may not have heard of a new one yet.
    """
    known = next((replica for replica in replicas if replica.replica_id == replica_id), None)
    node, state = ("", ReplicaState.STARTING) if known is None else (known.node, known.state)
    return {"model": model.name, "replica": replica_id, "node": node, "state": state.value}


def _in_llama_servers_names(part: Part) -> Part:
    labels, families = part
    return labels, llamacpp_families(families)

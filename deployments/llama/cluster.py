"""What endpoints that look at the whole server ask: models, replicas, and a model's card."""

import asyncio
from typing import Protocol

from deployments.ingress.handler import Engine
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings, application_name
from deployments.wire import ModelStatus

Stats = dict[str, float]


class Cluster(Engine, Protocol):
    """Implemented by `deployments.ingress.fleet.Fleet`."""

    async def statuses(self, timeout_s: float = ...) -> list[ModelStatus]:
        """Raises Refused while there is no router."""
        ...

    async def is_serving(self) -> bool: ...

    async def broadcast(self, application: str, deployment: str, method: str) -> list[object]:
        """The answers of those replicas that gave one in time."""
        ...


async def replicas_of(cluster: Cluster, model: str) -> tuple[list[Stats], int]:
    """What each replica is doing, and how many requests one runs at once."""
    application = application_name(model)
    stats, settings = await asyncio.gather(
        cluster.broadcast(application, MODEL_DEPLOYMENT, "stats"),
        cluster.broadcast(application, MODEL_DEPLOYMENT, "settings"),
    )
    known = [one.limits.max_running for one in settings if isinstance(one, ModelSettings)]
    return [one for one in stats if isinstance(one, dict)], max(known, default=0)

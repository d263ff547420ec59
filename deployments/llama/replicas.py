"""What a model's replicas are doing, as slots and properties sum it up."""

import asyncio

from deployments.ingress.cluster import Cluster
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.wire import ModelStatus

Stats = dict[str, float]


async def replicas_of(cluster: Cluster, model: ModelStatus) -> tuple[list[Stats], int]:
    """What each replica is doing, and how many requests one runs at once."""
    stats, settings = await asyncio.gather(
        cluster.broadcast(model.application, MODEL_DEPLOYMENT, "stats"),
        cluster.broadcast(model.application, MODEL_DEPLOYMENT, "settings"),
    )
    known = [one.limits.max_running for one in settings if isinstance(one, ModelSettings)]
    return [one for one in stats if isinstance(one, dict)], max(known, default=0)

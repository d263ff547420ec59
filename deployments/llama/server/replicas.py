"""The slots and running requests of a model's replicas, for /slots and /props."""

import asyncio
from dataclasses import dataclass
from typing import cast

from deployments.contract.model_status import ModelStatus
from deployments.ingress.fleet.cluster import Cluster
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings

Stats = dict[str, float]


@dataclass(frozen=True, slots=True)
class Replicas:
    """`slots_each` is the number of requests that a replica runs at once."""

    stats: list[Stats]
    slots_each: int
    speculates: bool


async def replicas_of(cluster: Cluster, model: ModelStatus) -> Replicas:
    stats, settings = await asyncio.gather(
        cluster.broadcast(model.application, MODEL_DEPLOYMENT, "stats"),
        cluster.broadcast(model.application, MODEL_DEPLOYMENT, "settings"),
    )
    limits = [answer.limits for answer in settings if isinstance(answer, ModelSettings)]
    found = [numbers for _, numbers in cast(list[tuple[str, Stats]], stats)]
    # An engine that sleeps, or is none of ours, does not say how many it runs.
    running = max((int(counts.get("max_running", 0)) for counts in found), default=0)
    return Replicas(
        stats=found,
        slots_each=running or max((limit.max_running for limit in limits), default=0),
        speculates=any(limit.draft_tokens > 0 for limit in limits),
    )

"""The reports of replicas to the router, and what the router tells ingresses of replicas."""

from dataclasses import dataclass
from enum import StrEnum

from deployments.contract.model_status import ModelStatus


@dataclass(frozen=True, slots=True)
class TierSize:
    """A tier of a replica's cache. hit_tokens: of prompts that came from it, since the start."""

    name: str
    n_bytes: int
    hit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """A report of a replica to the router: how busy it is, and which pages it holds.

    Page hashes stand one after the other in `stored` and `evicted`; where a hash would be in both,
    only the last of it counts and stands there. `sequence` rises by one with each report of one
    `epoch`, which changes when a replica starts over with an empty cache; a router that misses one
    asks for a `snapshot`: a report whose `stored` is all that the replica holds, or, if that does
    not fit in a message, its beginning; the reports that follow store the rest.

    pending_tokens: of prompts, not computed yet.
    context_tokens: of running and waiting sequences, prompt and output.
    received: ids of the requests that came since the last report.
    idle_s: since the last request ended; 0 while there is one.
    preemptions, tokens_generated: since the replica started.
    failure: why it sleeps although it was to wake; "" if nothing hinders it.
    version: of the replica's card.
    pull_cost: the time to pull a page from another replica over the time to compute it; 0: it pulls
        none, and sends none.
    """

    application: str
    replica_id: str
    epoch: str
    sequence: int
    snapshot: bool
    stored: bytes = b""
    evicted: bytes = b""
    received: tuple[str, ...] = ()
    running: int = 0
    waiting: int = 0
    pending_tokens: int = 0
    context_tokens: int = 0
    pages_used: int = 0
    pages_total: int = 0
    page_size: int = 0
    preemptions: int = 0
    tokens_generated: int = 0
    tiers: tuple[TierSize, ...] = ()
    idle_s: float = 0.0
    sleeping: bool = False
    failure: str = ""
    version: str = ""
    pull_cost: float = 0.0


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    FAILED = "failed"  # it sleeps, and can't wake
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """A replica as the router knows it; `report` is its last one, None before the first.

    node: the IP address of its node, and `node_id` Ray's name of that; "" while it has none.
    """

    replica_id: str
    node: str
    node_id: str
    state: ReplicaState
    report: ReplicaReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """All models, the default one first, and the replicas of each.

    started_at: when the graph was deployed, in seconds of Unix time.
    can_download: the operator named a folder for downloads.
    """

    started_at: float
    can_download: bool
    models: tuple[tuple[ModelStatus, tuple[ReplicaStatus, ...]], ...]

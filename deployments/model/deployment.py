"""The actor around one engine: an asyncio front for other actors, the engine's thread behind it.

Admission is the engine's: Serve's own limit on running calls is out of the way.
"""

import os
import pickle
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator

import ray
from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from ray.serve.config import RequestRouterConfig
from ray.serve.deployment import Application
from ray.serve.handle import DeploymentHandle

from deployments.ingress.metrics import Family
from deployments.model.metrics import engine_families
from deployments.model.pin import PinRouter
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.wire import (
    ErrorKind,
    FinishReason,
    GenerationRequest,
    ReplicaLoad,
    RequestError,
    TokenEvent,
)

# Serve's gRPC transport refuses messages over 4 MiB; tokenizers can be larger.
CARD_CHUNK_BYTES = 1 << 20
MAX_TOMBSTONES = 10_000


@serve.deployment(
    name=MODEL_DEPLOYMENT,
    max_ongoing_requests=10_000,
    health_check_period_s=2,
    health_check_timeout_s=10,
    graceful_shutdown_timeout_s=20,
    max_constructor_retry_count=1,  # a model that can't be loaded can't be loaded a second later
    logging_config={"enable_access_log": False},
    request_router_config=RequestRouterConfig(request_router_class=PinRouter),
)
class Model:
    def __init__(self, settings: ModelSettings) -> None:
        # With no core left for ingresses and proxies, threads that spin would stall them, and be
        # stalled, for whole scheduler quanta. OpenMP reads this when torch loads it.
        if int(os.environ.get("OMP_NUM_THREADS", "1")) >= len(os.sched_getaffinity(0)):
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # Not at the top: the router imports this module and must stay free of torch.
        from deployments.model.loading import load_engine

        self._settings = settings
        self._engine = load_engine(settings)
        card = zlib.compress(pickle.dumps(self._engine.card), level=1)
        self._card = [
            card[at : at + CARD_CHUNK_BYTES] for at in range(0, len(card), CARD_CHUNK_BYTES)
        ]
        self._replica_id: str = serve.get_replica_context().replica_id.unique_id
        self._tombstones: OrderedDict[str, None] = OrderedDict()

    async def generate(
        self, pin: str | None, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence, whose ids were made by the card of this version.

        `pin` is for PinRouter alone.
        """
        if version != self._engine.card.version:
            yield failed("The model was replaced; try again", ErrorKind.MODEL_REPLACED)
            return
        if request.request_id in self._tombstones:
            yield TokenEvent(finish_reason=FinishReason.ABORT)
            return
        events = self._engine.core.stream(request)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def abort(self, request_id: str) -> None:
        """Ends a request, also one that is still on its way here.

        Cancellation says the same and is sometimes lost.
        """
        self._tombstones[request_id] = None
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)
        self._engine.core.abort(request_id)

    async def card(self) -> AsyncGenerator[bytes, None]:
        """The model card, pickled and compressed, in pieces."""
        for chunk in self._card:
            yield chunk

    async def settings(self) -> ModelSettings:
        return self._settings

    async def load(self) -> ReplicaLoad:
        """Raises RuntimeError when the engine is dead: it must not look idle."""
        self.check_health()
        stats = self._engine.core.stats()
        return ReplicaLoad(
            replica_id=self._replica_id,
            running=stats.active_requests,
            waiting=stats.waiting_requests,
        )

    async def stats(self) -> dict[str, float]:
        return self._engine.get_stats()

    async def samples(self) -> tuple[dict[str, str], list[Family]]:
        """Its metrics, and the labels that tell them from other replicas'."""
        labels = {"model": self._settings.name, "replica": self._replica_id}
        return labels, engine_families(self._engine.core.stats())

    def check_health(self) -> None:
        self._engine.core.check_health()

    def __del__(self) -> None:
        if hasattr(self, "_engine"):  # else its constructor failed
            self._engine.shutdown()


def model_application(settings: ModelSettings) -> Application:
    """What to deploy for a model."""
    gpus = settings.num_gpus or 0
    cpus = settings.num_cpus
    if cpus is None:
        cpus = 1 if gpus else default_cpus(settings.num_replicas)
    deployment = Model.options(  # type: ignore[attr-defined]
        num_replicas=settings.num_replicas,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
    )
    model = deployment.bind(settings)
    # HAProxy balances the first deployment of an application itself, and Serve then refuses it a
    # router of its own: another one has to stand before the model.
    return Door.bind(model) if RAY_SERVE_ENABLE_HA_PROXY else model  # type: ignore[attr-defined]


@serve.deployment(name="Door", ray_actor_options={"num_cpus": 0})
class Door:
    """Does nothing; calls go to the model by its name."""

    def __init__(self, model: DeploymentHandle) -> None:
        pass


def default_cpus(num_replicas: int) -> int:
    """Half of a node's cores, which its replicas share: ingresses and proxies live on the rest."""
    cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    replicas_a_node = -(-num_replicas // len(cores))
    return max(1, int(max(cores)) // 2 // replicas_a_node)


def failed(message: str, kind: ErrorKind) -> TokenEvent:
    return TokenEvent(finish_reason=FinishReason.ERROR, error=RequestError(kind, message))

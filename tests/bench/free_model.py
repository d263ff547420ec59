"""A model that costs nothing: what is left of a request's time is the front end's."""

import pickle
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence

from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from ray.serve.config import RequestRouterConfig
from ray.serve.deployment import Application

from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.replica_status import ReplicaReport
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision, RoutingQuery
from deployments.model.application import Door
from deployments.model.channel_server import ChannelServers
from deployments.model.pinned_routing import PinRouter
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.router.replicas.replica_set import ReplicaSet
from deployments.router.settings import RoutingSettings
from deployments.telemetry.metric_families import MetricFamily
from tests.text.cards import card

SETTINGS = ModelSettings(name="free", path="none")
STATUS = ModelStatus(
    name=SETTINGS.name,
    application=SETTINGS.application,
    state=ModelState.READY,
    created=0,
    replicas=1,
)
REPORT = ReplicaReport(
    application=SETTINGS.application, replica_id="only", epoch="", sequence=0, snapshot=True
)
WORD = (300,)  # some token of the card's vocabulary


async def say(
    version: str, request: GenerationRequest, is_complete: Callable[[], bool] = lambda: False
) -> AsyncGenerator[TokenEvent, None]:
    word = TokenEvent(token_ids=WORD)
    for _ in range((request.max_tokens or 1) - 1):
        yield word
    yield TokenEvent(token_ids=WORD, finish_reason=FinishReason.LENGTH)


@serve.deployment(
    name=MODEL_DEPLOYMENT,
    max_ongoing_requests=10_000,
    logging_config={"enable_access_log": False},
    request_router_config=RequestRouterConfig(request_router_class=PinRouter),
    ray_actor_options={"num_cpus": 0},
)
class FreeModel:
    """Says the same token as often as it may, one an event; what `Model` answers, it does."""

    def __init__(self) -> None:
        replica_id: str = serve.get_replica_context().replica_id.unique_id
        self._channels = ChannelServers(replica_id, say)

    async def generate(
        self, pin: str | None, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        async for event in say(version, request):
            yield event

    async def open_channel(
        self, pin: str | None, name: str, update: bytes
    ) -> AsyncGenerator[bytes, None]:
        async for burst in self._channels.open(name, update):
            yield burst

    async def update_channel(self, pin: str | None, name: str, update: bytes) -> bool:
        return self._channels.update(name, update)

    async def abort(self, *request_ids: str) -> None:
        pass

    async def complete(self, *request_ids: str) -> None:
        pass

    async def card(self) -> AsyncGenerator[bytes, None]:
        yield zlib.compress(pickle.dumps(card(name=SETTINGS.name, context_length=1 << 20)))

    async def settings(self) -> ModelSettings:
        return SETTINGS

    async def busy(self) -> int:
        return 0

    async def stats(self) -> dict[str, float]:
        return {}

    async def samples(self) -> tuple[dict[str, str], list[MetricFamily]]:
        return {}, []


@serve.deployment(name="Router", max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
class FreeRouter:
    """Chooses as the router does, among replicas of which one has reported; deploys nothing."""

    def __init__(self) -> None:
        self._replicas = ReplicaSet(SETTINGS.name, RoutingSettings())
        self._replicas.report(REPORT)

    async def choose(self, queries: Sequence[RoutingQuery]) -> list[RoutingDecision]:
        chosen = (self._replicas.choose(*query[1:-1]).replica_id for query in queries)
        return [RoutingDecision(replica_id, True) for replica_id in chosen]

    async def ensure_loaded(
        self, model: str | None, who: str, wait_s: float, unloads: int | None
    ) -> ModelStatus:
        return STATUS

    async def models(self) -> list[ModelStatus]:
        return [STATUS]

    async def samples(self) -> tuple[dict[str, str], list[MetricFamily]]:
        return {}, self._replicas.families()


def free_router() -> Application:
    return FreeRouter.bind()  # type: ignore[attr-defined]


def free_model() -> Application:
    model = FreeModel.bind()  # type: ignore[attr-defined]
    return Door.bind(model) if RAY_SERVE_ENABLE_HA_PROXY else model  # type: ignore[attr-defined]

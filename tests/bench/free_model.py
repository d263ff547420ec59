"""A model that costs nothing: what is left of a request's time is the front end's."""

import pickle
import zlib
from collections.abc import AsyncGenerator

from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from ray.serve.config import RequestRouterConfig
from ray.serve.deployment import Application

from deployments.ingress.metrics import Family
from deployments.model.application import Door, rank_resources
from deployments.model.pin import PinRouter
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.wire import FinishReason, GenerationRequest, TokenEvent
from tests.text.cards import card

SETTINGS = ModelSettings(name="free", path="none", num_cpus=0)
WORD = (300,)  # some token of the card's vocabulary


@serve.deployment(
    name=MODEL_DEPLOYMENT,
    max_ongoing_requests=10_000,
    logging_config={"enable_access_log": False},
    request_router_config=RequestRouterConfig(request_router_class=PinRouter),
)
class FreeModel:
    """Says the same token as often as it may, one an event; what `Model` answers, it does."""

    async def generate(
        self, pin: str | None, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        word = TokenEvent(token_ids=WORD)
        for _ in range((request.max_tokens or 1) - 1):
            yield word
        yield TokenEvent(token_ids=WORD, finish_reason=FinishReason.LENGTH)

    async def abort(self, request_id: str) -> None:
        pass

    async def card(self) -> AsyncGenerator[bytes, None]:
        yield zlib.compress(pickle.dumps(card(name=SETTINGS.name, context_length=1 << 20)))

    async def settings(self) -> ModelSettings:
        return SETTINGS

    async def busy(self) -> int:
        return 0

    async def stats(self) -> dict[str, float]:
        return {}

    async def samples(self) -> tuple[dict[str, str], list[Family]]:
        return {}, []


def free_model() -> Application:
    # Of the version that the router would deploy: it takes this one for that and leaves it alone.
    named = FreeModel.options(  # type: ignore[attr-defined]
        _internal=True, version=SETTINGS.version, ray_actor_options=rank_resources(SETTINGS)
    )
    model = named.bind()
    return Door.bind(model) if RAY_SERVE_ENABLE_HA_PROXY else model  # type: ignore[attr-defined]

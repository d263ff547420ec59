"""One request through any protocol: the engine's card, the builder's generations, the answer.

Every answer is a stream inside; a unary one is the fold of the same deltas.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from deployments.ingress.answer import Answer
from deployments.ingress.builder import ApiRequest, Generation, ResponseBuilder
from deployments.ingress.metrics import InflightGuard
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.text.tokenizer import TokenizerCache
from deployments.wire import GenerationRequest, ModelCard, TokenEvent

RequestT = TypeVar("RequestT", bound=ApiRequest)


class Engine(Protocol):
    """All that an ingress knows of what computes."""

    async def card(self, model: str | None) -> ModelCard:
        """None asks for the default model. Raises Refused."""
        ...

    def generate(
        self, card: ModelCard, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """Starts with its first step; closing it aborts what it started.

        A refusal is raised as Refused, or is an event with the reason ERROR.
        """
        ...

    async def models(self) -> Sequence[tuple[str, int]]:
        """The names that `card` takes, each with its creation in Unix seconds."""
        ...


class ProtocolHandler(Generic[RequestT]):
    """`off_loop` prepares in a thread, for requests that are long enough to hold others up."""

    def __init__(
        self,
        request: RequestT,
        engine: Engine,
        builder: ResponseBuilder[RequestT],
        *,
        tokenizers: TokenizerCache,
        guard: InflightGuard,
        request_id: str,
        settings: IngressSettings = DEFAULTS,
        off_loop: bool = False,
    ) -> None:
        self._request = request
        self._engine = engine
        self._builder = builder
        self._tokenizers = tokenizers
        self._guard = guard
        self._request_id = request_id
        self._settings = settings
        self._off_loop = off_loop

    async def handle(self) -> Answer:
        """The answer, not yet begun. Raises Refused."""
        stream = bool(self._request.stream)
        card = await self._engine.card(self._request.model)
        self._guard.serving(card.name, stream=stream)
        return Answer(
            await self._prepare(card),
            partial(self._engine.generate, card),
            self._builder,
            self._guard,
            stream=stream,
            settings=self._settings,
            request_id=self._request_id,
        )

    async def _prepare(self, card: ModelCard) -> Sequence[Generation]:
        if self._off_loop or not self._tokenizers.holds(card):
            return await asyncio.to_thread(self._prepare_now, card)
        return self._prepare_now(card)

    def _prepare_now(self, card: ModelCard) -> Sequence[Generation]:
        tokenizer = self._tokenizers.get(card)
        return self._builder.prepare(self._request, card, tokenizer)

"""One request through any protocol: the engine's card, the builder's generations, the answer.

Every answer is a stream inside; a unary one is the fold of the same deltas.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from starlette.types import Receive

from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.answer import (
    SPACE,
    Answer,
    AnswerParts,
    StreamAnswer,
    UnaryAnswer,
    body_headers,
    earliest,
    while_connected,
)
from deployments.ingress.generation.caller import Caller
from deployments.ingress.generation.deadline import Deadline
from deployments.ingress.generation.delayed_answer import DelayedAnswer
from deployments.ingress.generation.deltas import Deltas, Prepared
from deployments.ingress.generation.engine_client import Engine
from deployments.ingress.generation.response_builder import (
    ApiRequest,
    Generation,
    ResponseBuilder,
    UnaryBuilder,
)
from deployments.ingress.generation.warnings import log_warnings, warnings_of
from deployments.ingress.metrics import InflightGuard
from deployments.ingress.off_loop import BodyWork
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.ingress.stopping import waiting
from deployments.telemetry.spans import span
from deployments.text.tokens.tokenizer import TokenizerCache

RequestT = TypeVar("RequestT", bound=ApiRequest)


class ProtocolHandler(Generic[RequestT]):
    def __init__(
        self,
        request: RequestT,
        engine: Engine,
        builder: UnaryBuilder[RequestT],
        *,
        tokenizers: TokenizerCache,
        guard: InflightGuard,
        request_id: str,
        caller: Caller,
        settings: IngressSettings = DEFAULTS,
        body_work: BodyWork,
    ) -> None:
        self._request = request
        self._engine = engine
        self._builder = builder
        self._tokenizers = tokenizers
        self._guard = guard
        self._request_id = request_id
        self._caller = caller
        self._settings = settings
        self._body_work = body_work
        self._streams: ResponseBuilder[RequestT] | None = None  # where the request asks for that
        self._keep_alive_s: float | None = None
        if request.stream:
            assert isinstance(builder, ResponseBuilder), "its requests ask for no stream"
            self._streams = builder
            self._keep_alive_s = builder.keep_alive_s(request, settings.keep_alive_s)
        self._has_card = False  # so no wait for the model any more

    async def begin(self, receive: Receive) -> Answer | DelayedAnswer:
        """The answer; a delayed one if the model is not up in time. Raises Refused and
        ClientDisconnect.
        """
        preparing = asyncio.create_task(self.handle())
        try:
            await asyncio.sleep(0)  # work that waits for nothing needs no watch
            if not preparing.done():
                silence_s = self._silence_s()
                await while_connected(_wait(preparing, silence_s), receive)
                if silence_s is not None and self._is_delayed(preparing):
                    return self._delayed(preparing, silence_s)
                await while_connected(_wait(preparing, None), receive)
        except BaseException:
            preparing.cancel()
            raise
        try:
            return preparing.result()
        finally:
            del preparing  # with it this frame, which a failure holds, is in a cycle

    def _silence_s(self) -> float | None:
        """Seconds until an answer has to send something; None for no limit. A unary answer that has
        begun can't be refused any more: it begins early only behind a proxy that hides a client's
        disconnect.
        """
        probe_s = self._settings.probe_s
        return earliest(self._keep_alive_s, probe_s)

    async def handle(self) -> Answer:
        """The answer, not yet begun. Raises Refused."""
        began = time.monotonic()
        async with waiting(self._settings.stopping):
            card = await self._engine.card(self._request.model)
        self._has_card = True
        waited_s = time.monotonic() - began
        self._guard.serving(card.name, stream=self._streams is not None)
        prepared = await self._prepared(card)
        warnings = warnings_of(prepared.generations)
        log_warnings(self._request_id, warnings)
        parts = AnswerParts(
            deltas=Deltas(prepared, self._prepare_again),
            guard=self._guard,
            probe_s=self._settings.probe_s,
            deadline=Deadline(self._settings.request_timeout_s, waited_s),
            request_id=self._request_id,
            warnings=warnings,
            stopping=self._settings.stopping,
        )
        if self._streams is None:
            return UnaryAnswer(self._builder, parts)
        return StreamAnswer(self._streams, parts, self._keep_alive_s)

    def _is_delayed(self, preparing: asyncio.Task[Answer]) -> bool:
        """Whether the answer is delayed: only while the model is waited for.

        An invalid request gets its own status.
        """
        return not (self._has_card or preparing.done())

    def _delayed(self, preparing: asyncio.Task[Answer], silence_s: float) -> DelayedAnswer:
        delayed = partial(
            DelayedAnswer, preparing, self._guard, silence_s=silence_s, request_id=self._request_id
        )
        if self._streams is None:
            return delayed(headers=body_headers(self._builder), silence=SPACE)
        stream_type = self._streams.stream_type
        return delayed(
            headers=stream_type.raw_headers,
            silence=stream_type.keep_alive,
            stream_type=stream_type,
            format_refusal=self._streams.format_refusal,
        )

    async def _prepared(self, card: ModelCard) -> Prepared:
        with span("prepare"):
            generations = await self._prepare(card)
        return Prepared(generations, partial(self._engine.generate, card))

    async def _prepare_again(self) -> Prepared:
        """Prepares the request for the model that the name means now. Raises Refused."""
        return await self._prepared(await self._engine.card(self._request.model))

    async def _prepare(self, card: ModelCard) -> Sequence[Generation]:
        self._builder.check_model(self._request, card)
        await self._builder.recall(self._request, card)
        is_heavy = self._request.is_heavy or not self._tokenizers.is_built(card)
        prepare = partial(self._prepare_now, card)
        generations = await self._body_work.run(prepare, is_heavy=is_heavy)
        self._builder.check_size(generations)
        return generations

    def _prepare_now(self, card: ModelCard) -> Sequence[Generation]:
        tokenizer = self._tokenizers.get(card)
        prepared = self._builder.prepare(self._request, card, tokenizer)
        return [self._with_caller(generation) for generation in prepared]

    def _with_caller(self, generation: Generation) -> Generation:
        caller, request = self._caller, generation.request
        orders_all = self._settings.priority_orders_all
        request = replace(
            request,
            client=caller.client,
            owner=caller.owner,
            session=caller.session_with(request.content, request.id_slot),
            content=replace(request.content, salt=self._salt(request.content.salt)),
            priority=request.priority if orders_all else 0,
            own_priority=0 if orders_all else request.priority,
            may_gather=not (self._request.stream or generation.text.may_stop),
        )
        return replace(generation, request=request)

    def _salt(self, own: str) -> str:
        """One key's prompts can't be guessed from what another one finds in the cache."""
        return own if self._settings.shared_prefixes else self._caller.salt(own)


async def _wait(preparing: asyncio.Task[Answer], timeout_s: float | None) -> None:
    await asyncio.wait({preparing}, timeout=timeout_s)

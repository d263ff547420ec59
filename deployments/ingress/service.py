"""What the generating routes of a process share; a route is a path, a schema and a builder."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.routing import Route

from deployments.ingress.answer import Answer
from deployments.ingress.body import BODY_LIMIT, parse_json, read_body
from deployments.ingress.builder import ApiRequest, ResponseBuilder
from deployments.ingress.handler import KEEP_ALIVE_S, Engine, ProtocolHandler
from deployments.ingress.http import request_id_of
from deployments.ingress.metrics import Metrics
from deployments.text.tokenizer import TokenizerCache

OFF_LOOP = 32 << 10  # bytes of a body from which its work goes to a thread

RequestT = TypeVar("RequestT", bound=ApiRequest)


@dataclass(frozen=True, slots=True)
class Operation(Generic[RequestT]):
    """One way to ask for a generation. `parse` takes the JSON of a body, and raises Refused."""

    name: str  # the `endpoint` of the metrics
    path: str
    parse: Callable[[object], RequestT]
    builder: Callable[[], ResponseBuilder[RequestT]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    engine: Engine
    metrics: Metrics
    keep_alive_s: float = KEEP_ALIVE_S
    probe_s: float | None = None
    body_limit: int = BODY_LIMIT
    tokenizers: TokenizerCache = field(default_factory=TokenizerCache)

    def route(self, operation: Operation[RequestT]) -> Route:
        async def endpoint(request: Request) -> Answer:
            return await self._answer(request, operation)

        return Route(operation.path, endpoint, methods=["POST"], name=operation.name)

    async def _answer(self, http: Request, operation: Operation[RequestT]) -> Answer:
        guard = self.metrics.guard(operation.name)
        with guard.until_answered():
            body = await read_body(http, self.body_limit)
            off_loop = len(body) > OFF_LOOP
            handler = ProtocolHandler(
                await _parsed(body, operation, off_loop),
                self.engine,
                operation.builder(),
                tokenizers=self.tokenizers,
                guard=guard,
                request_id=request_id_of(http),
                keep_alive_s=self.keep_alive_s,
                probe_s=self.probe_s,
                off_loop=off_loop,
            )
            return await handler.handle()


async def _parsed(body: bytes, operation: Operation[RequestT], off_loop: bool) -> RequestT:
    def parsed() -> RequestT:
        return operation.parse(parse_json(body))

    return await asyncio.to_thread(parsed) if off_loop else parsed()

"""The routes of a protocol, from a path, a schema, and a response builder or a function."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.contract.errors import ErrorKind
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.answer import Answer, while_connected
from deployments.ingress.generation.caller import CONVERSATION_ID, Caller, caller_of
from deployments.ingress.generation.delayed_answer import DelayedAnswer
from deployments.ingress.generation.engine_client import Engine
from deployments.ingress.generation.handler import ProtocolHandler
from deployments.ingress.generation.inflight_limit import InflightLimit
from deployments.ingress.generation.media_reader import MediaReader
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import ApiRequest, UnaryBuilder
from deployments.ingress.http.app import REQUEST_ID, request_id_of
from deployments.ingress.http.body import parse_json, read_body
from deployments.ingress.http.body_budget import account_of
from deployments.ingress.http.clients import connection_of, owner_of
from deployments.ingress.http.openapi import EVENTS, JSON, DocumentedRoute
from deployments.ingress.http.sse import encode
from deployments.ingress.metrics import InflightGuard, Metrics
from deployments.ingress.off_loop import BodyWork, OffLoop
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.media.prompt_media import PromptMedia
from deployments.media.source import Source
from deployments.text.tokens.tokenizer import TextTokenizer, TokenizerCache

RequestT = TypeVar("RequestT", bound=ApiRequest)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[RequestT]):
    """A request for a generation, or for vectors.

    `parse` takes the JSON of a body, and raises Refused. `builder` is called for each request.
    `body` is the schema that documents it.
    """

    name: str  # the `endpoint` of the metrics
    path: str
    body: type[BaseModel]
    parse: Callable[[object], RequestT]
    builder: Callable[[RequestContext], UnaryBuilder[RequestT]]
    tag: str = "Generation"
    refusals: Collection[ErrorKind] = ()  # as a DocumentedRoute's


class UnaryRequest(Protocol):
    @property
    def model(self) -> str | None: ...
    @property
    def is_heavy(self) -> bool:
        """Whether it takes long to prepare, however short its body is."""


BodyT = TypeVar("BodyT", bound=UnaryRequest)
Answering = Callable[[BodyT, ModelCard, TextTokenizer], object]  # JSON; raises Refused
Recalling = Callable[[RequestContext, BodyT, ModelCard], Awaitable[Answering[BodyT]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryOperation(Generic[BodyT]):
    """A request with one answer and no stream. It needs a model's tokenizer and no generation.

    `answer` is awaited for each request: it recalls what the answer needs. Raises Refused.
    """

    name: str
    path: str
    body: type[BaseModel]
    parse: Callable[[object], BodyT]
    answer: Recalling[BodyT]


def recalls_nothing(answer: Answering[BodyT]) -> Recalling[BodyT]:
    async def recalled(context: RequestContext, asked: BodyT, card: ModelCard) -> Answering[BodyT]:
        return answer

    return recalled


@dataclass(slots=True, kw_only=True, eq=False)
class Service:
    """Requests count as in flight from before their bodies are read."""

    engine: Engine
    metrics: Metrics
    settings: IngressSettings = DEFAULTS
    tokenizers: TokenizerCache = field(default_factory=TokenizerCache)
    streams: ResumableStreams | None = None  # those that outlive their connections, if any may
    off_loop: OffLoop = field(default_factory=OffLoop)
    inflight_limit: InflightLimit = field(init=False)
    media: MediaReader = field(init=False)

    def __post_init__(self) -> None:
        self.inflight_limit = InflightLimit(self.settings.max_inflight)
        self.media = MediaReader(self.settings.media)

    def route(self, operation: Operation[RequestT]) -> Route:
        async def endpoint(request: Request) -> ASGIApp:
            keeper = self._keeper(request)
            try:
                answer = await self._generate(request, operation)
            except ClientDisconnect:
                return nothing
            return answer if keeper is None else keeper(answer)

        return DocumentedRoute(
            operation.path,
            endpoint,
            methods=["POST"],
            name=operation.name,
            tag=operation.tag,
            body=operation.body,
            media_types=(JSON, EVENTS) if "stream" in operation.body.model_fields else (JSON,),
            refusals=operation.refusals,
        )

    def unary_route(self, operation: UnaryOperation[BodyT]) -> Route:
        async def endpoint(request: Request) -> ASGIApp:
            guard = self.metrics.guard(operation.name)
            try:
                with guard.until_answered():
                    answer = await self._answer_unary(request, operation, guard)
            except ClientDisconnect:
                return nothing
            with guard:
                guard.mark_ok()
            return Response(encode(answer), media_type="application/json")

        return DocumentedRoute(
            operation.path,
            endpoint,
            methods=["POST"],
            name=operation.name,
            tag="Text and tokens",
            body=operation.body,
        )

    def _keeper(self, request: Request) -> Callable[[Answer | DelayedAnswer], ASGIApp] | None:
        """Returns the keeper of `streams`; None without streams or where no headers ask for it."""
        if self.streams is None or CONVERSATION_ID not in request.headers:
            return None
        client = connection_of(request, sees_peers=self.settings.sees_peers)
        return self.streams.keeper(request, client)

    async def _generate(
        self, http: Request, operation: Operation[RequestT]
    ) -> Answer | DelayedAnswer:
        guard = self.metrics.guard(operation.name)
        with guard.until_answered():
            connection = self.enter(http, guard)
            owner = owner_of(http)
            work, (asked, caller) = await self._parsed(
                http,
                connection,
                lambda value: (operation.parse(value), caller_of(http, value, connection, owner)),
            )
            context = self.request_context(http, _named(http), owner, connection, work)
            builder = operation.builder(context)
            return await self.begin(http, asked, builder, guard, caller, work)

    async def begin(
        self,
        http: Request,
        asked: RequestT,
        builder: UnaryBuilder[RequestT],
        guard: InflightGuard,
        caller: Caller,
        work: BodyWork,
    ) -> Answer | DelayedAnswer:
        """Raises Refused and ClientDisconnect."""
        handler = ProtocolHandler(
            asked,
            self.engine,
            builder,
            tokenizers=self.tokenizers,
            guard=guard,
            request_id=request_id_of(http),
            caller=caller,
            settings=self.settings,
            body_work=work,
        )
        return await handler.begin(http.receive)

    async def _parsed(
        self, http: Request, connection: str, parse: Callable[[object], ValueT]
    ) -> tuple[BodyWork, ValueT]:
        """Returns the work on the body, and what `parse` makes of its JSON.

        Neither the body nor its JSON is kept any longer.
        """
        body = await read_body(http, self.settings)
        work = BodyWork(self.off_loop, len(body), connection)
        return work, await work.run(lambda: parse(parse_json(body)))

    def enter(self, http: Request, guard: InflightGuard) -> str:
        """The client, as `connection_of` says. The request is in flight until the guard closes.

        Raises Refused.
        """
        connection = connection_of(http, sees_peers=self.settings.sees_peers)
        guard.on_close(self.inflight_limit.acquire(connection))
        return connection

    async def _answer_unary(
        self, http: Request, operation: UnaryOperation[BodyT], guard: InflightGuard
    ) -> object:
        connection = self.enter(http, guard)
        work, asked = await self._parsed(http, connection, operation.parse)

        async def prepared() -> tuple[Answering[BodyT], ModelCard]:
            card = await self.engine.card(asked.model)
            context = self.request_context(http, http.headers, owner_of(http), connection, work)
            return await operation.answer(context, asked, card), card

        answer, card = await while_connected(prepared(), http.receive)
        guard.serving(card.name, stream=False)
        return await work.run(
            lambda: answer(asked, card, self.tokenizers.get(card)),
            is_heavy=asked.is_heavy or not self.tokenizers.is_built(card),
        )

    def request_context(
        self, http: Request, headers: Mapping[str, str], owner: str, client: str, work: BodyWork
    ) -> RequestContext:
        reserve = reserve_of(http, work)

        async def read_media(sources: Sequence[Source], card: ModelCard) -> PromptMedia:
            return await self.media.read(sources, card, client, reserve)

        return RequestContext(headers, owner, client, reserve, read_media)


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to a client that has left."""


def reserve_of(http: Request, work: BodyWork) -> Callable[[int], None]:
    """Returns a RequestContext's `reserve`.

    Bytes that are recalled count for the budget of bodies, and for the work on the request.
    """
    account = account_of(http)

    def reserve(n_bytes: int) -> None:
        if account is not None:
            account.reserve(n_bytes)
        work.n_bytes += n_bytes

    return reserve


def _named(http: Request) -> Mapping[str, str]:
    """The headers of a request, with its id first."""
    own = (REQUEST_ID.encode(), request_id_of(http).encode())
    return Headers(raw=[own, *http.headers.raw])

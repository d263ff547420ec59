"""A router and replicas in this process, where an ingress has Ray Serve's handles otherwise."""

import asyncio
import pickle
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ray.exceptions import ActorDiedError, RayError
from ray.serve.schema import ServeStatus

from deployments.contract.errors import RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision, RoutingQuery
from deployments.contract.slots import SlotAction, SlotReport
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.model.settings import application_name
from tests.ingress.fleet.replicas import Remote, Replica, Response
from tests.text.cards import card

MODEL = card().name
AnswerT = TypeVar("AnswerT")
Fate = Callable[[GenerationRequest], AsyncIterator[TokenEvent]]


def status(state: ModelState, name: str = MODEL, **fields: Any) -> ModelStatus:
    return ModelStatus(
        name=name, application=application_name(name), state=state, created=1, **fields
    )


UP = status(ModelState.READY, replicas=1)


@dataclass(slots=True)
class RouterActor:
    """`wants` are the answers to come, of which the last one stays."""

    wants: list[ModelStatus | RequestError | BaseException] = field(default_factory=lambda: [UP])
    choices: list[RoutingDecision | BaseException] = field(
        default_factory=lambda: [RoutingDecision(None, True)]
    )
    gate: asyncio.Event | None = None  # that wants wait for
    wanted: list[tuple[str | None, str]] = field(default_factory=list)
    unloads: list[int | None] = field(default_factory=list)  # that those who want it know of
    asked: list[tuple[str, str]] = field(default_factory=list)  # request ids and sessions
    tables: list[str] = field(default_factory=list)  # the versions that they know
    batches: list[int] = field(default_factory=list)  # queries in each call
    choosing: asyncio.Event | None = None  # that choices wait for
    chosen: asyncio.Event = field(default_factory=asyncio.Event)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    statuses: list[ModelStatus] = field(default_factory=lambda: [UP])
    told: int = 0  # how often all statuses were
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))  # the same
    waiting: int = 0
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: RequestError | None = None

    async def ensure_loaded(
        self, model: str | None, who: str, wait_s: float, unloads: int | None
    ) -> ModelStatus | RequestError | BaseException:
        self.wanted.append((model, who))
        self.unloads.append(unloads)
        self.waiting += 1
        self.joined.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.waiting -= 1
            self.left.set()
        return _next(self.wants)

    async def choose(self, queries: Sequence[RoutingQuery]) -> list[RoutingDecision]:
        self.batches.append(len(queries))
        self.chosen.set()
        if self.choosing is not None:
            await self.choosing.wait()
        self.asked += [(query.request_id, query.session) for query in queries]
        self.tables += [query.adapters for query in queries]
        return [_given(_next(self.choices)) for _ in queries]

    async def models(self) -> list[ModelStatus]:
        self.told += 1
        self.looks.release()
        return self.statuses

    async def load(self, model: str) -> RequestError | None:
        self.commands.append(("load", model))
        return self.refusal

    async def reload(self) -> RequestError | None:
        self.commands.append(("reload",))
        return self.refusal


@dataclass(slots=True)
class ModelActor:
    """Each attempt at a generation meets the next of its `fates`, and all others the last one."""

    card: ModelCard
    fates: list[Fate | BaseException]
    requests: list[tuple[str | None, GenerationRequest]] = field(default_factory=list)
    cancelled: int = 0
    aborted: list[str] = field(default_factory=list)
    heard_of: asyncio.Queue[tuple[str, ...]] = field(default_factory=asyncio.Queue)
    thoughts_ended: asyncio.Queue[tuple[str, ...]] = field(default_factory=asyncio.Queue)
    opened: int = 0  # channels
    stillborn: int = 0  # so many channels after the first one end before their replica's first word
    replicas: dict[str, Replica] = field(default_factory=dict)  # by their channels
    cards_sent: int = 0
    card_deaths: list[BaseException] = field(default_factory=list)  # of the attempts to fetch it
    slot_actions: list[tuple[str | None, str]] = field(default_factory=list)
    slot_answer: SlotReport | RequestError | BaseException = field(
        default_factory=lambda: SlotReport(9)
    )
    meeting: asyncio.Barrier | None = None  # of all calls to all replicas

    def generate(
        self, pin: str | None, version: str, request: GenerationRequest
    ) -> AsyncIterator[TokenEvent]:
        assert version == self.card.version
        self.requests.append((pin, request))
        fate = self.fates.pop(0) if len(self.fates) > 1 else self.fates[0]
        if isinstance(fate, BaseException):
            raise fate
        return fate(request)

    def open_channel(self, pin: str | None, name: str, update: bytes) -> AsyncIterator[bytes]:
        """Opens a channel to a replica that lives for as long as the channel."""
        self.opened += 1

        async def run(version: str, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
            try:
                async for event in self.generate(pin, version, request):
                    yield event
            except RayError as death:
                replica.die(death)
                await asyncio.Event().wait()

        replica = self.replicas[name] = Replica(pin or "any", run)
        if 1 < self.opened <= 1 + self.stillborn:
            return _dead()
        return replica.open_channel(name, update)

    async def update_channel(self, pin: str | None, name: str, update: bytes) -> bool:
        return await self.replicas[name].update_channel(name, update)

    async def act_on_slot(
        self, pin: str | None, request_id: str, action: SlotAction
    ) -> SlotReport | RequestError:
        self.slot_actions.append((pin, request_id))
        if isinstance(self.slot_answer, BaseException):
            raise self.slot_answer
        return self.slot_answer

    async def send_card(self) -> AsyncIterator[bytes]:
        if self.card_deaths:
            raise self.card_deaths.pop()
        self.cards_sent += 1
        yield zlib.compress(pickle.dumps(self.card))


async def _dead() -> AsyncIterator[bytes]:
    raise ActorDiedError
    yield b""


class Actors:
    def __init__(self, *fates: Fate | BaseException) -> None:
        self.router = RouterActor()
        self.model = ModelActor(card(), list(fates) or [produces()])
        self.metrics = Metrics()
        self.serve = ServeStatus()

    def fleet(self, settings: IngressSettings = DEFAULTS) -> Fleet:
        return Fleet(settings, self.metrics, self.handles())

    def handles(self) -> ServeHandles:
        return ServeHandles(self.find, lambda: self.serve)

    def find(self, deployment: str, application: str) -> Any:
        return _RouterHandle(self.router) if deployment == "Router" else _ModelHandle(self.model)


def produces(
    until: int | None = None,
    death: BaseException | None = None,
    cached: int = 0,
) -> Fate:
    """Tokens that their positions determine, until there are so many, and then the death."""

    async def fate(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        assert request.max_tokens is not None
        for index in range(len(request.produced_ids), request.max_tokens):
            if index == until and death is not None:
                raise death
            last = index + 1 == request.max_tokens
            yield TokenEvent(
                token_ids=(token_at(index),),
                finish_reason=FinishReason.LENGTH if last else None,
                cached_tokens=cached,
            )
            await asyncio.sleep(0)

    return fate


def token_at(index: int) -> int:
    return 11 + 7 * index


class _Stream:
    def __init__(self, actor: ModelActor, items: AsyncIterator[Any]) -> None:
        self._actor = actor
        self._items = items

    def __aiter__(self) -> "_Stream":
        return self

    async def __anext__(self) -> Any:
        return await anext(self._items)

    def cancel(self) -> None:
        self._actor.cancelled += 1


class _RouterHandle:
    def __init__(self, router: RouterActor) -> None:
        self._router = router

    def __getattr__(self, name: str) -> Remote:
        method: Callable[..., Coroutine[Any, Any, object]] = getattr(self._router, name)
        return Remote(lambda *args: Response(method(*args)))


class _ModelHandle:
    def __init__(self, actor: ModelActor) -> None:
        self._actor = actor

    def options(self, *, stream: bool, method_name: str) -> Remote:
        actor = self._actor
        if method_name == "card":
            return Remote(actor.send_card)
        return Remote(lambda *args: _Stream(actor, getattr(actor, method_name)(*args)))

    @property
    def update_channel(self) -> Remote:
        return Remote(lambda *args: Response(self._actor.update_channel(*args)))

    @property
    def act_on_slot(self) -> Remote:
        return Remote(lambda *args: Response(self._actor.act_on_slot(*args)))

    def broadcast(self, method: str, *args: str) -> "_Broadcast":
        if method == "heartbeat":
            self._actor.heard_of.put_nowait(args)
        elif method == "end_thoughts":
            self._actor.thoughts_ended.put_nowait(args)
        else:
            self._actor.aborted += args
        return _Broadcast(self._actor.meeting)


class _Broadcast:
    def __init__(self, meeting: asyncio.Barrier | None) -> None:
        self._meeting = meeting

    async def _fetch_replica_results_async(self) -> "list[_Broadcast]":
        return [self]

    async def get_async(self) -> object:
        if self._meeting is not None:
            await self._meeting.wait()
        return 0


def _given(answer: RoutingDecision | BaseException) -> RoutingDecision:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _next(answers: list[AnswerT]) -> AnswerT:
    return answers.pop(0) if len(answers) > 1 else answers[0]

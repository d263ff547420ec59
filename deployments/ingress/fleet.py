"""The engine as an ingress sees it: all models and replicas behind Ray, one stream a request.

A request belongs to the ingress: it keeps what was produced, and when a replica dies goes on from
there on another one. The router is asked and never waited for long: without it any replica will do.
"""

import asyncio
import logging
import pickle
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from contextvars import Context

from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.ingress.said import Said
from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from deployments.wire import (
    ErrorKind,
    GenerationRequest,
    ModelCard,
    ModelState,
    ModelStatus,
    Refused,
    RequestError,
    TokenEvent,
)
from kv.hashing import page_hashes

log = logging.getLogger("ray.serve")

UNREACHABLE = (RayError, RayServeException, TimeoutError)
CHOICE_TIMEOUT_S = 0.5
CONTROL_TIMEOUT_S = 5.0
# Before each further attempt: a replica whose engine died is replaced after three health checks.
RETRY_DELAYS_S = (0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
# A request without a token is given up when its model has had no replica for WATCHES of these.
WATCH_S = 10.0
WATCHES = 6


class ReplicaGoneError(Exception):
    """The replica ended the stream without ending the sequence."""


class Fleet:
    """Implements `deployments.ingress.handler.Engine`. Belongs to one event loop."""

    def __init__(self) -> None:
        self._handles: dict[tuple[str, str], DeploymentHandle] = {}
        self._cards: dict[str, ModelCard] = {}
        self._fetching: dict[str, asyncio.Task[ModelCard]] = {}
        self._default: str | None = None
        self._statuses: list[ModelStatus] = []  # as last heard
        self._background: set[asyncio.Task[None]] = set()

    async def card(self, model: str | None) -> ModelCard:
        name = model or self._default
        if name is None or name not in self._cards:
            name = await self._find(model)
            self._cards[name] = await self._fetch(name)
        return self._cards[name]

    async def models(self) -> list[tuple[str, int]]:
        """Models that are ready, with their creation in Unix seconds."""
        ready = [s for s in await self.statuses() if s.state is ModelState.READY]
        return [(status.name, status.created) for status in ready]

    async def statuses(self, timeout_s: float = CONTROL_TIMEOUT_S) -> list[ModelStatus]:
        """What the router knows. Raises Refused while there is none."""
        try:
            async with asyncio.timeout(timeout_s):
                router = await self._router()
                self._statuses = await router.models.remote()
        except UNREACHABLE as error:
            raise unavailable("The router does not answer; try again soon") from error
        return self._statuses

    async def is_serving(self) -> bool:
        """Whether some model answers, asked directly: a router may be missing for a while."""
        for status in self._statuses:
            if await self.broadcast(status.application, MODEL_DEPLOYMENT, "load"):
                return True
        return False

    async def generate(
        self, card: ModelCard, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence from however many replicas it takes."""
        hashes = tuple(page_hashes(request.prompt_ids, card.page_size, request.cache_salt))
        said = Said(request)
        for attempt, delay in enumerate(RETRY_DELAYS_S):
            await asyncio.sleep(delay)
            part = said.rest(attempt)
            pin = await self._choose(card.name, hashes)
            try:
                async with aclosing(self._attempt(card, pin, part)) as events:
                    async for event in events:
                        said.add(event)
                        yield event
                        if event.finish_reason is not None:
                            return
            except (RayActorError, ReplicaGoneError) as error:
                log.warning("request %s goes on elsewhere: %r", request.request_id, error)
        raise unavailable(f"{len(RETRY_DELAYS_S)} attempts at this request were lost")

    async def broadcast(self, application: str, deployment: str, method: str) -> list[object]:
        """The answers of all of a deployment's replicas that gave one in time."""
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                handle = await self._handle(application, deployment)
                answers: list[object] = await handle.broadcast(method).results_async(
                    timeout_s=CONTROL_TIMEOUT_S, return_exceptions=True
                )
        except UNREACHABLE as error:
            log.warning("no %s from %s: %r", method, application, error)
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _handle(self, application: str, deployment: str) -> DeploymentHandle:
        """Applications start in no particular order: handles are made on first use, then kept."""
        key = application, deployment
        if key not in self._handles:
            self._handles[key] = await asyncio.to_thread(_find_deployment, deployment, application)
        return self._handles[key]

    async def _router(self) -> DeploymentHandle:
        return await self._handle("router", "Router")

    async def _model(self, name: str) -> DeploymentHandle:
        return await self._handle(application_name(name), MODEL_DEPLOYMENT)

    async def _find(self, model: str | None) -> str:
        """The name of a model that is ready. Raises Refused."""
        statuses = await self.statuses()
        found = next((s for s in statuses if model is None or s.name == model), None)
        if found is None:
            message = f"The model {model!r} does not exist"
            raise Refused(RequestError(ErrorKind.MODEL_NOT_FOUND, message, "model"))
        if found.state is not ModelState.READY:
            reason = f": {found.message}" if found.message else ""
            raise unavailable(f"The model {found.name!r} is not ready ({found.state}){reason}")
        if model is None:
            self._default = found.name
        return found.name

    async def _fetch(self, name: str) -> ModelCard:
        """Fetches a card once, however many requests wait for it."""
        if name not in self._fetching:
            task = asyncio.get_running_loop().create_task(self._fetch_card(name), context=Context())
            self._fetching[name] = task
            task.add_done_callback(lambda _: self._fetching.pop(name))
        return await asyncio.shield(self._fetching[name])

    async def _fetch_card(self, name: str) -> ModelCard:
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                model = await self._model(name)
                chunks = model.options(stream=True, method_name="card").remote()
                packed = b"".join([chunk async for chunk in chunks])
        except UNREACHABLE as error:
            raise unavailable(f"The model {name!r} does not answer") from error
        return await asyncio.to_thread(_unpack, packed)

    async def _choose(self, model: str, hashes: tuple[bytes, ...]) -> str | None:
        try:
            async with asyncio.timeout(CHOICE_TIMEOUT_S):
                router = await self._router()
                pin: str | None = await router.choose.remote(model, hashes)
        except UNREACHABLE as error:
            log.warning("the router gave no advice: %r", error)
            return None
        return pin

    async def _attempt(
        self, card: ModelCard, pin: str | None, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """One replica's events. Raises RayActorError or ReplicaGoneError when it is lost."""
        stream = None
        ended = False
        try:
            model = await self._model(card.name)
            generate = model.options(stream=True, method_name="generate")
            stream = generate.remote(pin, card.version, request)
            async with aclosing(self._watched(card.name, stream)) as events:
                async for event in events:
                    self._check(card, event)
                    ended = event.finish_reason is not None
                    yield event
            if not ended:
                raise ReplicaGoneError
        except BackPressureError as error:
            raise Refused(RequestError(ErrorKind.OVERLOADED, "The model is overloaded")) from error
        except (RayServeException, TimeoutError) as error:
            self._forget(card.name)
            raise unavailable(f"The model {card.name!r} is not running") from error
        finally:
            if stream is not None and not ended:
                stream.cancel()
                # Cancellation alone is lost now and then, and this task may be ending itself.
                self._in_background(self._abort(card.name, request.request_id))

    async def _watched(
        self, model: str, stream: AsyncIterator[TokenEvent]
    ) -> AsyncGenerator[TokenEvent, None]:
        """The stream, given up when it has not begun and its model has no replica left.

        A call to a deployment that is down waits for a replacement, which may never come.
        """
        first = asyncio.ensure_future(anext(stream))
        missing = 0
        try:
            while not (await asyncio.wait({first}, timeout=WATCH_S))[0]:
                missing = 0 if await self._has_replica(model) else missing + 1
                if missing == WATCHES:
                    self._forget(model)
                    raise unavailable(f"The model {model!r} has no replica left")
        finally:
            first.cancel()
        try:
            yield first.result()
        except StopAsyncIteration:
            return
        async for event in stream:
            yield event

    async def _has_replica(self, model: str) -> bool:
        try:
            statuses = await self.statuses()
        except Refused:
            return True  # for all that is known
        return any(s.name == model and s.state is ModelState.READY for s in statuses)

    def _check(self, card: ModelCard, event: TokenEvent) -> None:
        """Raises for the ends that are not the sequence's own."""
        if event.error is None:
            return
        if event.error.kind is ErrorKind.UNAVAILABLE:
            raise ReplicaGoneError  # an engine that stops says so
        if event.error.kind is ErrorKind.MODEL_REPLACED:
            self._forget(card.name)

    def _forget(self, model: str) -> None:
        """It may come back as another one."""
        self._cards.pop(model, None)
        self._default = None

    async def _abort(self, model: str, request_id: str) -> None:
        """Wherever it runs: a pin is only a hint."""
        try:
            handle = await self._model(model)
            responses = handle.broadcast("abort", request_id)
            await responses.results_async(timeout_s=CONTROL_TIMEOUT_S, return_exceptions=True)
        except UNREACHABLE as error:
            log.warning("request %s could not be aborted: %r", request_id, error)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        # In a context of its own: Serve cancels every call made in a request's that has ended.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def unavailable(message: str) -> Refused:
    return Refused(RequestError(ErrorKind.UNAVAILABLE, message))


def _find_deployment(deployment: str, application: str) -> DeploymentHandle:
    """Blocks on Serve's controller. Raises RayServeException when there is no such deployment."""
    try:
        return serve.get_deployment_handle(deployment, application)
    except KeyError as error:
        message = f"the application {application} has no deployment {deployment} now"
        raise RayServeException(message) from error


def _unpack(packed: bytes) -> ModelCard:
    card: ModelCard = pickle.loads(zlib.decompress(packed))
    return card

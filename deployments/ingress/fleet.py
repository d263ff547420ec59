"""The engine as an ingress sees it: all models and replicas behind Ray, one stream a request.

A request belongs to the ingress: it keeps what was produced, and when a replica dies goes on from
there on another one. The router is asked and never waited for long: without it any replica will do.
"""

import asyncio
import logging
import pickle
import zlib
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from contextvars import Context
from dataclasses import replace

from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
)
from ray.serve.handle import DeploymentHandle

from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from deployments.wire import (
    ErrorKind,
    FinishReason,
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

CHOICE_TIMEOUT_S = 0.5
CONTROL_TIMEOUT_S = 5.0
MAX_ATTEMPTS = 4


class Fleet:
    """Implements `deployments.ingress.handler.Engine`. Belongs to one event loop."""

    def __init__(self) -> None:
        self._handles: dict[tuple[str, str], DeploymentHandle] = {}
        self._cards: dict[str, ModelCard] = {}
        self._default: str | None = None
        self._cleanup: set[asyncio.Task[None]] = set()

    async def card(self, model: str | None) -> ModelCard:
        name = model or self._default
        if name is None or name not in self._cards:
            name = await self._find(model)
            self._cards[name] = await self._fetch_card(name)
        return self._cards[name]

    async def models(self) -> list[tuple[str, int]]:
        """Models that are ready, with their creation in Unix seconds."""
        ready = [s for s in await self.statuses() if s.state is ModelState.READY]
        return [(status.name, status.created) for status in ready]

    async def statuses(self) -> list[ModelStatus]:
        """What the router knows. Raises Refused while there is none."""
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                statuses: list[ModelStatus] = await self._router().models.remote()
        except (RayError, RayServeException, TimeoutError) as error:
            raise unavailable("The router does not answer; try again soon") from error
        return statuses

    async def generate(
        self, card: ModelCard, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence from however many replicas it takes."""
        hashes = tuple(page_hashes(request.prompt_ids, card.page_size, request.cache_salt))
        produced = request.produced_ids
        for attempt in range(MAX_ATTEMPTS):
            # A name of its own: the lost attempt may still run where it was sent.
            part = replace(
                request, request_id=f"{request.request_id}-{attempt}", produced_ids=produced
            )
            pin = await self._choose(card.name, hashes)
            try:
                async with aclosing(self._attempt(card.name, pin, part)) as events:
                    async for event in events:
                        produced += event.token_ids
                        yield event
                        if event.finish_reason is not None:
                            return
            except (RayActorError, ReplicaGoneError) as error:
                log.warning("request %s goes on elsewhere: %r", request.request_id, error)
        raise unavailable(f"{MAX_ATTEMPTS} replicas of the model failed on this request")

    async def broadcast(self, application: str, deployment: str, method: str) -> list[object]:
        """The answers of all of a deployment's replicas that gave one in time."""
        try:
            call = self._handle(application, deployment).broadcast(method)
            answers: list[object] = await call.results_async(
                timeout_s=CONTROL_TIMEOUT_S, return_exceptions=True
            )
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("no %s from %s: %r", method, deployment, error)
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    def _handle(self, application: str, deployment: str) -> DeploymentHandle:
        """Applications start in no particular order: handles are made on first use, then kept."""
        key = application, deployment
        if key not in self._handles:
            self._handles[key] = serve.get_deployment_handle(deployment, application)
        return self._handles[key]

    def _router(self) -> DeploymentHandle:
        return self._handle("router", "Router")

    def _model(self, name: str) -> DeploymentHandle:
        return self._handle(application_name(name), MODEL_DEPLOYMENT)

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

    async def _fetch_card(self, name: str) -> ModelCard:
        try:
            chunks = self._model(name).options(stream=True, method_name="card").remote()
            pickled = b"".join([chunk async for chunk in chunks])
        except (RayError, RayServeException) as error:
            raise unavailable(f"The model {name!r} does not answer") from error
        card: ModelCard = pickle.loads(zlib.decompress(pickled))
        return card

    async def _choose(self, model: str, hashes: tuple[bytes, ...]) -> str | None:
        try:
            async with asyncio.timeout(CHOICE_TIMEOUT_S):
                pin: str | None = await self._router().choose.remote(model, hashes)
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("the router gave no advice: %r", error)
            return None
        return pin

    async def _attempt(
        self, model: str, pin: str | None, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """One replica's events. Raises RayActorError or ReplicaGoneError when it is lost."""
        stream = None
        ended = False
        try:
            generate = self._model(model).options(stream=True, method_name="generate")
            stream = generate.remote(pin, request)
            async for event in stream:
                if _is_gone(event):
                    raise ReplicaGoneError
                ended = event.finish_reason is not None
                yield event
            if not ended:
                raise ReplicaGoneError
        except BackPressureError as error:
            raise Refused(RequestError(ErrorKind.OVERLOADED, "The model is overloaded")) from error
        except (DeploymentUnavailableError, RayServeException) as error:
            self._cards.pop(model, None)  # it may come back as another one
            raise unavailable(f"The model {model!r} is not running") from error
        finally:
            if stream is not None and not ended:
                stream.cancel()
                # Cancellation alone is lost now and then, and this task may be ending itself.
                self._in_background(self._abort(model, pin, request.request_id))

    async def _abort(self, model: str, pin: str | None, request_id: str) -> None:
        try:
            if pin is not None:
                async with asyncio.timeout(CONTROL_TIMEOUT_S):
                    await self._model(model).abort.remote(pin, request_id)
            else:
                responses = self._model(model).broadcast("abort", None, request_id)
                await responses.results_async(timeout_s=CONTROL_TIMEOUT_S, return_exceptions=True)
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("request %s could not be aborted: %r", request_id, error)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        # In a context of its own: Serve cancels every call made in a request's that has ended.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._cleanup.add(task)
        task.add_done_callback(self._cleanup.discard)


class ReplicaGoneError(Exception):
    """The replica ended the stream without ending the sequence."""


def unavailable(message: str) -> Refused:
    return Refused(RequestError(ErrorKind.UNAVAILABLE, message))


def _is_gone(event: TokenEvent) -> bool:
    """An engine that stops says so; the sequence itself can go on elsewhere."""
    return (
        event.finish_reason is FinishReason.ERROR
        and event.error is not None
        and event.error.kind is ErrorKind.UNAVAILABLE
    )

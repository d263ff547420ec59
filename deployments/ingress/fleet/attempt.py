"""One attempt at a sequence on one replica, which ends whole, refused, or lost: never silently."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import grpc  # type: ignore[import-untyped]
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException

from deployments.ingress.fleet import liveness as silence
from deployments.ingress.fleet.channel_client import Channels, Sequence
from deployments.ingress.fleet.cluster import UP
from deployments.ingress.fleet.heartbeats import Heartbeats
from deployments.ingress.fleet.liveness import SilentError
from deployments.ingress.fleet.retries import Retries
from deployments.ingress.fleet.router_client import RouterClient
from deployments.ingress.fleet.serve_handles import (
    CalledOffError,
    Handles,
    cancelled_elsewhere,
    unavailable,
)
from deployments.ingress.fleet.single_stream import Alone
from deployments.telemetry.spans import traced
from deployments.wire import (
    ErrorKind,
    GenerationRequest,
    ModelCard,
    ModelState,
    Refused,
    RequestError,
    TokenEvent,
)

# A call to a model without replicas waits for one, which may never come: it is looked at so often.
WATCH_S = 5.0
TOO_LARGE = (
    "The request or its answer is larger than a message between processes may be: shorten the "
    "prompt, or ask for fewer of its log-probabilities"
)


class LostError(Exception):
    """The replica ended the stream without ending the sequence; another one may go on."""


class ModelGoneError(LostError):
    """No replica at all takes the request: its model has to be wanted again."""


class Attempts:
    def __init__(self, handles: Handles, router: RouterClient, watch_s: float = WATCH_S) -> None:
        self._handles = handles
        self._channels = Channels(handles)
        self._heartbeats = Heartbeats(handles)
        self._router = router
        self._watch_s = watch_s

    async def events(
        self, card: ModelCard, pin: str | None, request: GenerationRequest, retries: Retries
    ) -> AsyncGenerator[TokenEvent, None]:
        """One replica's events. Raises LostError, or Refused."""
        stream: Alone | Sequence | None = None
        ended = False
        try:
            with losses():
                stream = await self._ask(card, pin, request)
                await self._until_said(stream, card.name, retries)
                async for event in stream:
                    ended = event.finish_reason is not None
                    _check(event)
                    yield event
            if not ended:
                raise LostError("the stream ended too early")
        finally:
            if stream is not None and not ended:
                stream.leave()

    async def _ask(
        self, card: ModelCard, pin: str | None, request: GenerationRequest
    ) -> Alone | Sequence:
        """Without advice Serve spreads the calls; a traced one shows where it is; and a prompt's
        log-probabilities would hold up others.
        """
        if pin is not None and request.prompt_logprobs is None and not traced():
            return self._channels.ask(card.name, pin, card.version, request)
        model = await self._handles.model(card.name)
        generate = model.options(stream=True, method_name="generate")
        stream = generate.remote(pin, card.version, request)
        return Alone(self._handles, self._heartbeats, card.name, request.request_id, stream)

    async def _until_said(self, stream: Alone | Sequence, model: str, retries: Retries) -> None:
        """Waits for something to be read. Raises SilentError when the replicas that there are do
        not show that they have the request.
        """
        unheard_s = 0.0
        while not await stream.comes(self._watch_s):
            is_there = await self._has_replicas(model, retries)
            unheard_s = unheard_s + self._watch_s if is_there and not stream.is_heard else 0.0
            if unheard_s >= silence.SILENCE_S:
                raise SilentError(f"not a word of any replica in {unheard_s:g} s")

    async def _has_replicas(self, model: str, retries: Retries) -> bool:
        """Raises ModelGoneError, or Refused when there has been no replica for too long."""
        try:
            status = await self._router.status(model, max_age_s=self._watch_s / 2)
        except Refused:
            return False  # they may well be there
        if status is None or status.state not in UP | {ModelState.LOADING}:
            raise ModelGoneError("the model is not up")
        if status.replicas or status.state is ModelState.SLEEPING:
            retries.found()
        elif not retries.left_s:
            raise unavailable(f"The model {model!r} has had no replica for too long")
        return status.replicas > 0


@contextmanager
def losses() -> Iterator[None]:
    """What Ray raises, in our words."""
    try:
        with cancelled_elsewhere():
            yield
    except BackPressureError as error:
        raise Refused(RequestError(ErrorKind.OVERLOADED, "The model is overloaded")) from error
    except RayTaskError:  # what broke inside, of whatever type; it would break again
        raise
    except (CalledOffError, SilentError) as error:
        raise LostError(repr(error)) from error
    except (RayServeException, TimeoutError) as error:
        raise ModelGoneError(repr(error)) from error
    except grpc.aio.AioRpcError as error:
        if "larger than max" in (error.details() or ""):  # it would be again
            raise Refused(RequestError(ErrorKind.INVALID_REQUEST, TOO_LARGE)) from error
        raise LostError(repr(error)) from error
    except RayError as error:
        raise LostError(repr(error)) from error


def _check(event: TokenEvent) -> None:
    """Raises LostError, or Refused."""
    if event.error is None:
        return
    if event.error.kind is ErrorKind.UNAVAILABLE:
        raise LostError(event.error.message)  # an engine that stops says so
    if event.error.kind in (ErrorKind.OVERLOADED, ErrorKind.MODEL_REPLACED):
        raise Refused(event.error)

"""One attempt at a sequence on one replica, which ends whole, refused, or lost: never silently."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

import grpc  # type: ignore[import-untyped]
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException

from deployments.ingress.cluster import UP
from deployments.ingress.handles import (
    CalledOffError,
    Handles,
    cancelled_elsewhere,
    unavailable,
)
from deployments.ingress.retries import Retries
from deployments.ingress.router_client import RouterClient
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


class LostError(Exception):
    """The replica ended the stream without ending the sequence; another one may go on."""


class ModelGoneError(LostError):
    """No replica at all takes the request: its model has to be wanted again."""


class Attempts:
    def __init__(self, handles: Handles, router: RouterClient, watch_s: float = WATCH_S) -> None:
        self._handles = handles
        self._router = router
        self._watch_s = watch_s

    async def events(
        self, card: ModelCard, pin: str | None, request: GenerationRequest, retries: Retries
    ) -> AsyncGenerator[TokenEvent, None]:
        """One replica's events. Raises LostError, or Refused."""
        stream = None
        ended = False
        try:
            with _losses():
                model = await self._handles.model(card.name)
                generate = model.options(stream=True, method_name="generate")
                stream = generate.remote(pin, card.version, request)
                async with aclosing(self._watched(card.name, stream, retries)) as events:
                    async for event in events:
                        ended = event.finish_reason is not None
                        _check(event)
                        yield event
            if not ended:
                raise LostError("the stream ended too early")
        finally:
            if stream is not None and not ended:
                stream.cancel()
                # Cancellation alone is lost now and then.
                self._handles.abort(card.name, request.request_id)

    async def _watched(
        self, model: str, stream: AsyncIterator[TokenEvent], retries: Retries
    ) -> AsyncGenerator[TokenEvent, None]:
        first = asyncio.ensure_future(anext(stream))
        try:
            while not (await asyncio.wait({first}, timeout=self._watch_s))[0]:
                await self._check_replicas(model, retries)
            yield first.result()
        except StopAsyncIteration:
            return
        finally:
            first.cancel()
        async for event in stream:
            yield event

    async def _check_replicas(self, model: str, retries: Retries) -> None:
        """Raises ModelGoneError, or Refused when there has been no replica for too long."""
        try:
            status = await self._router.status(model, max_age_s=self._watch_s / 2)
        except Refused:
            return  # the replica may well be there
        if status is None or status.state not in UP | {ModelState.LOADING}:
            raise ModelGoneError("the model is not up")
        if status.replicas or status.state is ModelState.SLEEPING:
            retries.found()
        elif not retries.left_s:
            raise unavailable(f"The model {model!r} has had no replica for too long")


@contextmanager
def _losses() -> Iterator[None]:
    """What Ray raises, in our words."""
    try:
        with cancelled_elsewhere():
            yield
    except BackPressureError as error:
        raise Refused(RequestError(ErrorKind.OVERLOADED, "The model is overloaded")) from error
    except RayTaskError:  # what broke inside, of whatever type; it would break again
        raise
    except CalledOffError as error:
        raise LostError(repr(error)) from error
    except (RayServeException, TimeoutError) as error:
        raise ModelGoneError(repr(error)) from error
    except (RayError, grpc.aio.AioRpcError) as error:
        raise LostError(repr(error)) from error


def _check(event: TokenEvent) -> None:
    """Raises LostError, or Refused."""
    if event.error is None:
        return
    if event.error.kind is ErrorKind.UNAVAILABLE:
        raise LostError(event.error.message)  # an engine that stops says so
    if event.error.kind is ErrorKind.OVERLOADED:
        raise Refused(event.error)

"""One attempt at a sequence on one replica. It ends complete, refused or lost, never silently."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager

import grpc  # type: ignore[import-untyped]
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException

from deployments.contract.channel import needs_pieces
from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelState
from deployments.contract.requests import GenerationRequest
from deployments.ingress.fleet import liveness
from deployments.ingress.fleet.channel_client import ChannelClients
from deployments.ingress.fleet.channel_stream import ChannelStream
from deployments.ingress.fleet.cluster import UP_STATES
from deployments.ingress.fleet.heartbeats import Heartbeats
from deployments.ingress.fleet.liveness import ReplicaSilentError
from deployments.ingress.fleet.retries import Retries
from deployments.ingress.fleet.router_client import RouterClient
from deployments.ingress.fleet.serve_handles import (
    CallCancelledError,
    ServeHandles,
    cancelled_elsewhere,
    unavailable,
)
from deployments.ingress.fleet.single_stream import SingleStream
from deployments.telemetry.spans import is_traced

# How often the state of a model is checked while a call waits for a replica of it.
WATCH_INTERVAL_S = 5.0
MESSAGE_TOO_LARGE = (
    "The request or its answer is larger than a message between processes may be: shorten the "
    "prompt, or ask for fewer of its log-probabilities"
)


class ReplicaLostError(Exception):
    """The stream ended before its sequence; another replica may continue it."""


class ReplicaDiedError(ReplicaLostError):
    """Its process is gone, or says nothing any more: a request that it had may be the cause.

    `had_it`: whether it had said that it has the request.
    """

    had_it = True


class ModelGoneError(ReplicaLostError):
    """The model has no replica that takes the request: it has to be loaded again."""


class Attempts:
    def __init__(
        self, handles: ServeHandles, router: RouterClient, watch_s: float = WATCH_INTERVAL_S
    ) -> None:
        self._handles = handles
        self._channels = ChannelClients(handles)
        self._heartbeats = Heartbeats(handles)
        self._router = router
        self._watch_s = watch_s

    async def events(
        self,
        card: ModelCard,
        pin: str | None,
        request: GenerationRequest,
        retries: Retries,
        is_complete: Callable[[], bool],
    ) -> AsyncGenerator[TokenEvent, None]:
        """The events of one replica. Raises ReplicaLostError or Refused."""
        stream: SingleStream | ChannelStream | None = None
        ended = False
        try:
            with translate_ray_errors():
                stream = await self._start(card, pin, request)
                await self._wait_for_first(stream, card.name, retries)
                async for event in stream:
                    ended = event.finish_reason is not None
                    _raise_error(event)
                    yield event
            if not ended:
                raise ReplicaLostError("the stream ended too early")
        except ReplicaDiedError as death:
            death.had_it = stream is not None and stream.is_taken
            raise
        finally:
            if stream is not None and not ended:
                stream.leave(is_complete=is_complete())

    async def _start(
        self, card: ModelCard, pin: str | None, request: GenerationRequest
    ) -> SingleStream | ChannelStream:
        """Starts it on a channel with others, but for two kinds of requests. Traced ones have spans
        of their own. Log-probabilities of a prompt would delay others. Only a channel takes files
        that are larger than a message.
        """
        is_shared = request.prompt_logprobs is None and not is_traced()
        if is_shared or needs_pieces(request):
            return self._channels.start(card.name, pin, card.version, request, is_shared=is_shared)
        model = await self._handles.model(card.name)
        generate = model.options(stream=True, method_name="generate")
        stream = generate.remote(pin, card.version, request)
        return SingleStream(self._handles, self._heartbeats, card.name, request.request_id, stream)

    async def _wait_for_first(
        self, stream: SingleStream | ChannelStream, model: str, retries: Retries
    ) -> None:
        """Waits for something to be read.

        Raises ReplicaSilentError when there are replicas and none shows that it has the request.
        """
        unconfirmed_s = 0.0
        while not await stream.is_readable(self._watch_s):
            is_there = await self._has_replicas(model, retries)
            unconfirmed_s = (
                unconfirmed_s + self._watch_s if is_there and not stream.is_confirmed else 0.0
            )
            if unconfirmed_s >= liveness.REPLICA_TIMEOUT_S:
                raise ReplicaSilentError(f"not a word of any replica in {unconfirmed_s:g} s")

    async def _has_replicas(self, model: str, retries: Retries) -> bool:
        """Raises ModelGoneError; Refused when there has been no replica for too long."""
        try:
            status = await self._router.status(model, max_age_s=self._watch_s / 2)
        except Refused:
            return False  # the router does not answer; replicas may exist
        if status is None or status.state not in UP_STATES | {ModelState.LOADING}:
            raise ModelGoneError("the model is not up")
        if status.replicas or status.state is ModelState.SLEEPING:
            retries.replica_found()
        elif not retries.remaining_s:
            raise unavailable(f"The model {model!r} has had no replica for too long")
        return status.replicas > 0


@contextmanager
def translate_ray_errors() -> Iterator[None]:
    """Turns what Ray raises into ReplicaLostError, ModelGoneError or Refused."""
    try:
        with cancelled_elsewhere():
            yield
    except BackPressureError as error:
        raise Refused.of_kind(ErrorKind.OVERLOADED, "The model is overloaded") from error
    except RayTaskError:  # an error in the replica's code, which another attempt would meet too
        raise
    except CallCancelledError as error:
        raise ReplicaLostError(repr(error)) from error
    except (ActorDiedError, ActorUnavailableError, ReplicaSilentError) as error:
        raise ReplicaDiedError(repr(error)) from error
    except (RayServeException, TimeoutError) as error:
        raise ModelGoneError(repr(error)) from error
    except grpc.aio.AioRpcError as error:
        if "larger than max" in (error.details() or ""):  # another attempt would be as large
            raise Refused.of_kind(ErrorKind.INVALID_REQUEST, MESSAGE_TOO_LARGE) from error
        is_dead = error.code() is grpc.StatusCode.UNAVAILABLE
        raise (ReplicaDiedError if is_dead else ReplicaLostError)(repr(error)) from error
    except RayError as error:
        raise ReplicaLostError(repr(error)) from error


def _raise_error(event: TokenEvent) -> None:
    """Raises ReplicaLostError for a replica that stops, Refused for what a replica refused."""
    if event.error is None:
        return
    if event.error.kind is ErrorKind.UNAVAILABLE:
        raise ReplicaLostError(event.error.message)
    if event.error.kind in (ErrorKind.OVERLOADED, ErrorKind.MODEL_REPLACED):
        raise Refused(event.error)

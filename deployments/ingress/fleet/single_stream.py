"""Sequences with streams of their own, and how their replicas hear that this ingress is there."""

import asyncio
from typing import Any

from deployments.channel_protocol import ALIVE, HEARTBEAT_S
from deployments.detached_tasks import in_own_context
from deployments.ingress.fleet.liveness import in_time
from deployments.ingress.fleet.serve_handles import Handles
from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from deployments.wire import TokenEvent


class Heartbeats:
    """All that a model runs for this ingress are told of together, to each of its replicas: nobody
    knows which of them runs what. Belongs to one event loop.
    """

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._lasting: dict[str, dict[str, None]] = {}  # request ids by model
        self._beating: set[asyncio.Task[None]] = set()

    def begin(self, model: str, request_id: str) -> None:
        """Pairs with `end`."""
        if model not in self._lasting:
            self._lasting[model] = {}
            task = in_own_context(self._beat(model))
            self._beating.add(task)
            task.add_done_callback(self._beating.discard)
        self._lasting[model][request_id] = None

    def end(self, model: str, request_id: str) -> None:
        self._lasting.get(model, {}).pop(request_id, None)

    async def _beat(self, model: str) -> None:
        try:
            await asyncio.sleep(HEARTBEAT_S)
            while lasting := self._lasting[model]:
                hears = self._handles.broadcast(
                    application_name(model), MODEL_DEPLOYMENT, "hear_of", *lasting
                )
                await asyncio.gather(hears, asyncio.sleep(HEARTBEAT_S))
        finally:
            del self._lasting[model]


class Alone:
    """A sequence with a stream of its own. Until its replica is heard of it may be waiting for one
    and is not lost, however long that takes.
    """

    def __init__(
        self, handles: Handles, heartbeats: Heartbeats, model: str, request_id: str, stream: Any
    ) -> None:
        self._handles = handles
        self._heartbeats = heartbeats
        self._model = model
        self._request_id = request_id
        self._stream = stream
        self._first: asyncio.Task[TokenEvent] | None = None
        self.is_heard = False

    def __aiter__(self) -> "Alone":
        return self

    async def __anext__(self) -> TokenEvent:
        first, self._first = self._first, None
        return await (self._said() if first is None else first)

    async def comes(self, within_s: float) -> bool:
        """Whether there is something to be read, or an end."""
        if self._first is None:
            self._first = asyncio.ensure_future(self._said())
        return bool((await asyncio.wait({self._first}, timeout=within_s))[0])

    async def _said(self) -> TokenEvent:
        while True:
            word = anext(self._stream)
            event: TokenEvent = await (in_time(word) if self.is_heard else word)
            if not self.is_heard:
                self.is_heard = True
                self._heartbeats.begin(self._model, self._request_id)
            if event.finish_reason is not None:
                self._heartbeats.end(self._model, self._request_id)
            if event != ALIVE:
                return event

    def leave(self) -> None:
        if self._first is not None:
            self._first.cancel()
        self._stream.cancel()
        self._heartbeats.end(self._model, self._request_id)
        self._handles.abort(self._model, self._request_id)  # cancellation is lost now and then

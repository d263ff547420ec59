"""The events of a sequence that has a stream of its own."""

import asyncio
from typing import Any

from deployments.contract.channel import HEARTBEAT
from deployments.contract.events import TokenEvent
from deployments.ingress.fleet.heartbeats import Heartbeats
from deployments.ingress.fleet.liveness import within_timeout
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.serving.detached_tasks import create_detached_task


class SingleStream:
    """A call for one sequence, which may wait for a replica until its replica sent something.

    It is not lost then, however long that takes. Its replica says nothing before it has computed
    something: it counts as taken from the first.
    """

    is_taken = True

    def __init__(
        self,
        handles: ServeHandles,
        heartbeats: Heartbeats,
        model: str,
        request_id: str,
        stream: Any,
    ) -> None:
        self._handles = handles
        self._heartbeats = heartbeats
        self._model = model
        self._request_id = request_id
        self._stream = stream
        self._first: asyncio.Task[TokenEvent] | None = None
        self.is_confirmed = False

    def __aiter__(self) -> "SingleStream":
        return self

    async def __anext__(self) -> TokenEvent:
        first, self._first = self._first, None
        return await (self._next_event() if first is None else first)

    async def is_readable(self, within_s: float) -> bool:
        """Whether an event or the end can be read within `within_s`."""
        if self._first is None:
            self._first = asyncio.ensure_future(self._next_event())
        return bool((await asyncio.wait({self._first}, timeout=within_s))[0])

    async def _next_event(self) -> TokenEvent:
        while True:
            item = anext(self._stream)
            event: TokenEvent = await (within_timeout(item) if self.is_confirmed else item)
            if not self.is_confirmed:
                self.is_confirmed = True
                self._heartbeats.begin(self._model, self._request_id)
            if event.finish_reason is not None:
                self._heartbeats.end(self._model, self._request_id)
            if event != HEARTBEAT:
                return event

    def leave(self, *, is_complete: bool) -> None:
        if self._first is not None:
            self._first.cancel()
            self._first.add_done_callback(_forget)
        self._heartbeats.end(self._model, self._request_id)
        if is_complete:
            create_detached_task(self._complete())
        else:
            self._end()

    async def _complete(self) -> None:
        """Tells the replica that the request is complete, before the call is cancelled.

        What is cancelled counts as aborted.
        """
        try:
            await self._handles.complete(self._model, self._request_id)
        finally:
            self._end()

    def _end(self) -> None:
        self._stream.cancel()
        self._handles.abort(self._model, self._request_id)  # Ray sometimes loses a cancellation


def _forget(event: "asyncio.Task[TokenEvent]") -> None:
    """Ray makes an error of its own of a cancellation; asyncio logs one that nobody reads."""
    if not event.cancelled():
        event.exception()

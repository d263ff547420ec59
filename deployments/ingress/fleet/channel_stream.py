"""A request on a channel, as its reader sees it: its events until it ends, or what ended it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from deployments.contract.channel import Join, needs_pieces, without_files
from deployments.contract.events import TokenEvent, merge
from deployments.ingress.fleet.serve_handles import ServeHandles


class ChannelStream:
    """`leave` ends it. `leave_channel` says whether its channel has it, or can tell the replica.
    `message` is what is sent of it, behind the pieces of its files if it has some.
    `is_confirmed`: a replica has it, or its channel ends by itself. False while that may wait for a
    replica that does not exist yet. `is_taken`: a replica said that it has it.
    """

    def __init__(self, join: Join, handles: ServeHandles, model: str) -> None:
        self.join = join
        self.message = without_files(join) if needs_pieces(join.request) else join
        self.is_confirmed = True
        self.is_taken = False
        self.leave_channel: Callable[[ChannelStream], bool] | None = None
        self._handles = handles
        self._model = model
        self._events: list[TokenEvent] = []
        self._failure: BaseException | None = None
        self.is_complete = False  # when it is left
        self._changed = asyncio.Event()

    @property
    def has_pieces(self) -> bool:
        return self.message is not self.join

    def put(self, event: TokenEvent) -> None:
        self.is_taken = True
        self._events.append(event)
        self._changed.set()

    def fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._changed.set()

    def leave(self, *, is_complete: bool = False) -> None:
        self.is_complete = is_complete
        if self.leave_channel is None or not self.leave_channel(self):
            self.abort()

    def abort(self) -> None:
        """Ends it on whatever replica it runs."""
        self._handles.abort(self._model, self.join.request.request_id)

    async def is_readable(self, within_s: float) -> bool:
        """Whether an event or the end can be read within `within_s`."""
        if not self._changed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._changed.wait()
        return self._changed.is_set()

    def __aiter__(self) -> "ChannelStream":
        return self

    async def __anext__(self) -> TokenEvent:
        """All events since the last call, merged. Raises what ended the channel."""
        await self._changed.wait()
        if not self._events:
            assert self._failure is not None
            raise self._failure
        events, self._events = self._events, []
        if self._failure is None:
            self._changed.clear()
        return merge(events)

"""Merges the deltas of generations that run side by side; closing it closes all of them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from deployments.ingress.generation.response_builder import Generation
from deployments.ingress.http.errors import internal_error
from deployments.text.stream import TextDelta
from deployments.wire import (
    ErrorKind,
    FinishReason,
    GenerationRequest,
    Refused,
    RequestError,
    TokenEvent,
)

logger = logging.getLogger(__name__)

MAX_ACTIVE_CHOICES = 512  # of one answer, so that it does not fill an engine's queue

# The last argument says, when the events are left, whether all of the answer is there.
Start = Callable[[GenerationRequest, Callable[[], bool]], AsyncGenerator[TokenEvent, None]]
ChoiceDelta = tuple[int, TextDelta]


class ChoiceMerge:
    """A slow reader slows the generations down: only a few deltas wait in between."""

    def __init__(self, generations: Sequence[Generation], start: Start) -> None:
        self._generations = generations
        self._start = start
        self._queue: asyncio.Queue[ChoiceDelta | RequestError] = asyncio.Queue(2 * len(generations))
        self._pumps: list[asyncio.Task[None]] = []
        self._slots = asyncio.Semaphore(MAX_ACTIVE_CHOICES)
        self._freed_slots = asyncio.Semaphore(0)  # slots, for choices that were deferred
        self._active = 0  # choices that have a slot
        self._deferred = 0
        self._started: set[int] = set()
        self._is_failing = False
        self._running = len(generations)
        self._failure: RequestError | None = None

    @property
    def is_done(self) -> bool:
        return self._running == 0

    def start(self) -> None:
        """Pairs with `close`."""
        pumps = (self._pump(*numbered) for numbered in enumerate(self._generations))
        self._pumps = [asyncio.create_task(pump) for pump in pumps]

    async def close(self) -> None:
        if unended := [pump for pump in self._pumps if not pump.done()]:
            for pump in unended:
                pump.cancel()
            await asyncio.gather(*unended, return_exceptions=True)

    async def batch(self) -> list[ChoiceDelta]:
        """All deltas that are there; waits for the first.

        Raises Refused when a generation has failed, after all that came before it.
        """
        if self._failure is None and (batch := self._drain(await self._queue.get())):
            return batch
        assert self._failure is not None
        raise Refused(self._failure)

    def _drain(self, item: ChoiceDelta | RequestError) -> list[ChoiceDelta]:
        batch: list[ChoiceDelta] = []
        while not isinstance(item, RequestError):
            batch.append(item)
            self._running -= item[1].finish_reason is not None
            if self._queue.empty():
                return batch
            item = self._queue.get_nowait()
        self._failure = item
        return batch

    async def _pump(self, choice: int, generation: Generation) -> None:
        await self._slots.acquire()
        self._active += 1
        while not await self._run(choice, generation):
            await self._freed_slots.acquire()
        if self._is_failing:  # no further choice starts
            return
        if self._deferred:
            self._deferred -= 1
            self._freed_slots.release()
        else:
            self._active -= 1
            self._slots.release()

    async def _run(self, choice: int, generation: Generation) -> bool:
        """Whether the choice ended; False when it was deferred."""
        events = self._start(generation.request, lambda: generation.text.is_complete)
        try:
            await self._forward(choice, generation, events)
        except Refused as refusal:
            if self._defer(choice, refusal.error):
                return False
            await self._fail(refusal.error)
        except Exception as failure:
            logger.exception("generation %s", generation.request.request_id)
            await self._fail(internal_error(failure))
        finally:
            await _close(events)
        return True

    async def _fail(self, error: RequestError) -> None:
        self._is_failing = True
        await self._queue.put(error)

    def _defer(self, choice: int, error: RequestError) -> bool:
        """Defers a choice that is refused as overload while others of its answer run: it gets the
        slot of the next one that ends. So overload does not fail an answer that is half done.
        """
        if error.kind is not ErrorKind.OVERLOADED or choice in self._started or self._active == 1:
            return False
        self._active -= 1
        self._deferred += 1
        return True

    async def _forward(
        self, choice: int, generation: Generation, events: AsyncGenerator[TokenEvent, None]
    ) -> None:
        async for event in events:
            if not event.token_ids:
                _check(event)  # before `text` ends, because the choice may start again
            delta = generation.text.push(event)
            _check(delta)
            self._started.add(choice)
            await self._queue.put((choice, delta))
            if delta.finish_reason is not None:
                return
        raise RuntimeError("the engine's stream ended without a finish reason")


def _check(item: TokenEvent | TextDelta) -> None:
    if item.finish_reason is FinishReason.ERROR:
        raise Refused(item.error or internal_error("the engine gave no reason"))
    if item.finish_reason is FinishReason.ABORT:
        message = "The generation was aborted by the server"
        raise Refused.of_kind(ErrorKind.UNAVAILABLE, message)


async def _close(events: AsyncGenerator[TokenEvent, None]) -> None:
    try:
        await events.aclose()
    except Exception:  # the answer is complete or has failed already
        logger.exception("closing a generation")

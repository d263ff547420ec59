"""Generations that run side by side as one sequence of deltas; closing it closes all of them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from deployments.ingress.builder import Generation
from deployments.ingress.errors import internal
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

AT_ONCE = 512  # of one answer: an engine's queue is not for it alone

Start = Callable[[GenerationRequest], AsyncGenerator[TokenEvent, None]]
Item = tuple[int, TextDelta]


class Merge:
    """A slow reader slows the generations down: only a few deltas wait in between."""

    def __init__(self, generations: Sequence[Generation], start: Start) -> None:
        self._generations = generations
        self._start = start
        self._queue: asyncio.Queue[Item | RequestError] = asyncio.Queue(2 * len(generations))
        self._pumps: list[asyncio.Task[None]] = []
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running = len(generations)
        self._failure: RequestError | None = None

    @property
    def done(self) -> bool:
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

    async def batch(self) -> list[Item]:
        """Everything that is there, waiting for something.

        Raises Refused when a generation has failed, after all that came before it.
        """
        if self._failure is None and (batch := self._drain(await self._queue.get())):
            return batch
        assert self._failure is not None
        raise Refused(self._failure)

    def _drain(self, item: Item | RequestError) -> list[Item]:
        batch: list[Item] = []
        while not isinstance(item, RequestError):
            batch.append(item)
            self._running -= item[1].finish_reason is not None
            if self._queue.empty():
                return batch
            item = self._queue.get_nowait()
        self._failure = item
        return batch

    async def _pump(self, choice: int, generation: Generation) -> None:
        async with self._places:
            await self._run(choice, generation)

    async def _run(self, choice: int, generation: Generation) -> None:
        events = self._start(generation.request)
        try:
            await self._forward(choice, generation, events)
        except Refused as refusal:
            await self._queue.put(refusal.error)
        except Exception as failure:
            logger.exception("generation %s", generation.request.request_id)
            await self._queue.put(internal(failure))
        finally:
            await _close(events)

    async def _forward(
        self, choice: int, generation: Generation, events: AsyncGenerator[TokenEvent, None]
    ) -> None:
        async for event in events:
            delta = generation.text.push(event)
            _check(delta)
            await self._queue.put((choice, delta))
            if delta.finish_reason is not None:
                return
        raise RuntimeError("the engine's stream ended without a finish reason")


def _check(delta: TextDelta) -> None:
    if delta.finish_reason is FinishReason.ERROR:
        raise Refused(delta.error or internal("the engine gave no reason"))
    if delta.finish_reason is FinishReason.ABORT:
        message = "The generation was aborted by the server"
        raise Refused(RequestError(ErrorKind.UNAVAILABLE, message))


async def _close(events: AsyncGenerator[TokenEvent, None]) -> None:
    try:
        await events.aclose()
    except Exception:  # its answer is complete or has failed already
        logger.exception("closing a generation")

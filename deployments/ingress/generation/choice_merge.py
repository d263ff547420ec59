"""Merges the deltas of generations that run side by side; closing it closes all of them."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.outputs import LabelParams
from deployments.contract.requests import GenerationRequest
from deployments.ingress.generation.response_builder import Generation
from deployments.ingress.http.errors import ENDINGS, internal_error
from deployments.text.stream import TextDelta

logger = logging.getLogger(__name__)

MAX_ACTIVE_CHOICES = 512  # of one answer, so that it does not fill an engine's queue
# Of texts that are computed in a step or two, so that others' requests come between: there are
# thousands in one request.
MAX_ACTIVE_TOKENS = 16384
MIN_ACTIVE_TEXTS = 8
# Of prompts with so much in common one goes first, so that the others find it in the cache.
MIN_SHARED_TOKENS = 128

# The last argument says, when the events are left, whether all of the answer is there.
Start = Callable[[GenerationRequest, Callable[[], bool]], AsyncGenerator[TokenEvent, None]]
ChoiceDelta = tuple[int, TextDelta]


class ChoiceMerge:
    """A slow reader slows the generations down: only a few deltas wait in between."""

    def __init__(self, generations: Sequence[Generation], start: Start) -> None:
        self._start = start
        self._waiting = deque(enumerate(generations))
        self._most = min(len(generations), _most_active(generations))
        self._has_leader = _share_much(generations)
        self._active = 0  # pumps
        self._queue: asyncio.Queue[ChoiceDelta | RequestError] = asyncio.Queue(2 * self._most)
        self._pumps: list[asyncio.Task[None]] = []
        self._started: set[int] = set()
        self._is_failing = False
        self._running = len(generations)
        self._failure: RequestError | None = None

    @property
    def is_done(self) -> bool:
        return self._running == 0

    def start(self) -> None:
        """Pairs with `close`."""
        self._begin(1 if self._has_leader else self._most)

    def _begin(self, n_pumps: int) -> None:
        self._active += n_pumps
        self._pumps += [asyncio.create_task(self._pump()) for _ in range(n_pumps)]

    async def close(self) -> None:
        if unended := [pump for pump in self._pumps if not pump.done()]:
            for pump in unended:
                pump.cancel()
            await asyncio.gather(*unended, return_exceptions=True)

    def fail(self, error: RequestError) -> None:
        for pump in self._pumps:
            pump.cancel()
        self._pumps.append(asyncio.create_task(self._fail(error)))

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

    async def _pump(self) -> None:
        """Runs one choice after the other. No further one starts when one has failed."""
        while self._waiting and not self._is_failing:
            if not await self._run(*self._waiting.popleft()):
                return
            if self._has_leader:
                self._has_leader = False
                self._begin(self._most - 1)
        self._active -= 1

    async def _run(self, choice: int, generation: Generation) -> bool:
        """Whether the choice ended; False when it was deferred."""
        events = self._start(generation.request, lambda: generation.text.is_complete)
        try:
            await self._forward(choice, generation, events)
        except Refused as refusal:
            if self._may_defer(choice, refusal.error):
                self._active -= 1
                self._waiting.appendleft((choice, generation))
                return False
            await self._fail(refusal.error)
        except ENDINGS:
            raise
        except BaseException as failure:
            logger.exception("generation %s", generation.request.request_id)
            await self._fail(internal_error(failure))
        finally:
            await _close(events)
        return True

    async def _fail(self, error: RequestError) -> None:
        self._is_failing = True
        await self._queue.put(error)

    def _may_defer(self, choice: int, error: RequestError) -> bool:
        """A choice that is refused as overload while others of its answer run comes after the next
        one that ends. So overload does not fail an answer that is half done.
        """
        is_first = choice not in self._started
        return error.kind is ErrorKind.OVERLOADED and is_first and self._active > 1

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


def _most_active(generations: Sequence[Generation]) -> int:
    if generations[0].request.output is None:
        return MAX_ACTIVE_CHOICES
    n_tokens = sum(len(choice.request.prompt_ids) for choice in generations) // len(generations)
    return max(MIN_ACTIVE_TEXTS, min(MAX_ACTIVE_CHOICES, MAX_ACTIVE_TOKENS // max(n_tokens, 1)))


def _share_much(generations: Sequence[Generation]) -> bool:
    """Whether they are prompts for labels, as questions about one text are."""
    first, *others = (generation.request for generation in generations[:2])
    if not others or not isinstance(first.output, LabelParams):
        return False
    prompts = first.prompt_ids[:MIN_SHARED_TOKENS], others[0].prompt_ids[:MIN_SHARED_TOKENS]
    return prompts[0] == prompts[1] and len(prompts[0]) == MIN_SHARED_TOKENS


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

"""The deltas of one answer. It is prepared again, once, if its model was replaced before them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.ingress.generation.choice_merge import ChoiceDelta, ChoiceMerge, Start
from deployments.ingress.generation.response_builder import Generation, Usage


class Prepared(NamedTuple):
    """The generations of an answer, and the function that starts one."""

    generations: Sequence[Generation]
    start: Start


class Deltas:
    """Entering it starts the generations, and leaving it closes them. `usage` is theirs."""

    def __init__(self, prepared: Prepared, again: Callable[[], Awaitable[Prepared]]) -> None:
        self._again = again
        self._may_renew = True  # until the first delta, and once
        self._renewing: asyncio.Task[None] | None = None
        self._take(prepared)

    @property
    def is_done(self) -> bool:
        return self._merge.is_done

    async def __aenter__(self) -> "Deltas":
        self._merge.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            self._renewing = None  # its failure, which holds this object's frames, is in a cycle
        await self._merge.close()

    def fail(self, error: RequestError) -> None:
        """Ends the generations; `batch` raises the error after all that came before it."""
        self._merge.fail(error)

    async def batch(self, timeout_s: float | None = None) -> list[ChoiceDelta]:
        """All deltas that are there; waits for the first, and returns none after `timeout_s`.

        Raises Refused when a generation has failed, after all that came before it.
        """
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._next()
        except TimeoutError:
            if not limit.expired():  # something inside raised it
                raise
            return []
        finally:
            del limit  # it has the task, and with it this frame, which a failure holds, is a cycle

    async def _next(self) -> list[ChoiceDelta]:
        if self._renewing is not None:
            await asyncio.shield(self._renewing)
        try:
            batch = await self._merge.batch()
        except Refused as refusal:
            if not self._may_renew or refusal.error.kind is not ErrorKind.MODEL_REPLACED:
                raise
            self._may_renew = False
            self._renewing = asyncio.create_task(self._renew())
            return await self._next()
        self._may_renew = False
        return batch

    async def _renew(self) -> None:
        await self._merge.close()
        self._take(await self._again())
        self._merge.start()

    def _take(self, prepared: Prepared) -> None:
        self._merge, self.usage = ChoiceMerge(*prepared), Usage(prepared.generations)

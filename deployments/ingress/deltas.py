"""The deltas of one answer, which is prepared anew, once, where its model was replaced before any
of it was told.
"""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from deployments.ingress.builder import Generation, Usage
from deployments.ingress.merge import Item, Merge, Start
from deployments.wire import ErrorKind, Refused


class Prepared(NamedTuple):
    """The generations of an answer, and what starts each of them."""

    generations: Sequence[Generation]
    start: Start


class Deltas:
    """Entering it starts the generations, and leaving it closes them. `usage` is theirs."""

    def __init__(self, prepared: Prepared, again: Callable[[], Awaitable[Prepared]]) -> None:
        self._again = again
        self._is_untold = True
        self._take(prepared)

    @property
    def done(self) -> bool:
        return self._merge.done

    async def __aenter__(self) -> "Deltas":
        self._merge.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._merge.close()

    async def batch(self, timeout_s: float | None = None) -> list[Item]:
        """As Merge has it; preparing comes on top of `timeout_s`."""
        try:
            batch = await self._merge.batch(timeout_s)
        except Refused as refusal:
            if not (self._is_untold and refusal.error.kind is ErrorKind.MODEL_REPLACED):
                raise
            await self._renew()
            batch = await self._merge.batch(timeout_s)
        self._is_untold &= not batch
        return batch

    async def _renew(self) -> None:
        self._is_untold = False  # once
        await self._merge.close()
        self._take(await self._again())
        self._merge.start()

    def _take(self, prepared: Prepared) -> None:
        self._merge, self.usage = Merge(*prepared), Usage(prepared.generations)

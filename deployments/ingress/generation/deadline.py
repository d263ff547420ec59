"""The deadline of an answer: what has not come by then is refused."""

import asyncio
from collections.abc import Awaitable, Callable

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.generation.choice_merge import ChoiceDelta
from deployments.ingress.generation.deltas import Deltas

GRACE_S = 5.0  # for a client to read the last of an answer


class Deadline:
    """`timeout_s` from now, less the `waited_s` before; None for no deadline."""

    def __init__(self, timeout_s: float | None, waited_s: float = 0.0) -> None:
        self._timeout_s = timeout_s
        now = asyncio.get_running_loop().time()
        self._end = None if timeout_s is None else now + timeout_s - waited_s

    async def batch(self, deltas: Deltas, silence_s: float | None) -> list[ChoiceDelta]:
        """Returns the deltas of `deltas.batch`. Raises Refused also after the deadline."""
        if self._end is None:
            return await deltas.batch(silence_s)
        left = self._left(self._end)
        batch: list[ChoiceDelta] = []
        if left > 0:
            batch = await deltas.batch(left if silence_s is None else min(left, silence_s))
        if not batch and self._left(self._end) <= 0:
            raise self._exceeded()
        return batch

    async def enforce(self, work: Callable[[], Awaitable[None]]) -> None:
        """Cancels `work` soon after the deadline: it may wait for a client that does not read."""
        if self._end is None:
            await work()
            return
        try:
            async with asyncio.timeout_at(self._end + GRACE_S):
                await work()
        except TimeoutError:
            raise self._exceeded() from None

    def _left(self, end: float) -> float:
        return end - asyncio.get_running_loop().time()

    def _exceeded(self) -> Refused:
        message = f"The answer took longer than the limit of {self._timeout_s:g} seconds"
        return Refused.of_kind(ErrorKind.GENERATION_TIMEOUT, message)

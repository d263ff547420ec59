"""The end of an ingress that is told to stop: its answers may end, and no new ones begin."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from deployments.contract.errors import ErrorKind, Refused, RequestError

STOPPED = RequestError(
    ErrorKind.UNAVAILABLE, "The server stopped before the answer was complete; try again soon"
)
LAST_S = 2.0  # for what says so to be sent


class Stopping:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.is_told = False
        self._n_open = 0
        self._has_ended = asyncio.Event()
        self._ends: set[Callable[[RequestError], None]] = set()

    async def end(self, seconds: float) -> None:
        """Returns when all answers have ended: by themselves within these seconds, or else with an
        error in their protocol's form.
        """
        self.is_told = True
        await self._until_idle(seconds)
        for end in list(self._ends):
            end(STOPPED)
        await self._until_idle(LAST_S)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Work that is waited for."""
        self._n_open += 1
        try:
            yield
        finally:
            self._n_open -= 1
            self._has_ended.set()

    @contextmanager
    def ending(self, end: Callable[[RequestError], None]) -> Iterator[None]:
        """The same, for an answer that `end` ends with an error where it takes too long."""
        self._ends.add(end)
        try:
            with self.counted():
                yield
        finally:
            self._ends.discard(end)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A wait inside of an answer. Raises Refused where it is too long."""
        limit = asyncio.timeout(None)
        loop = asyncio.get_running_loop()
        try:
            with self.ending(lambda _: limit.reschedule(loop.time())):
                async with limit:
                    yield
        except TimeoutError:
            if not limit.expired():  # something inside raised it
                raise
            raise Refused(STOPPED) from None

    async def _until_idle(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                while self._n_open:
                    self._has_ended.clear()
                    await self._has_ended.wait()
        except TimeoutError:
            return


@asynccontextmanager
async def waiting(stopping: Stopping | None) -> AsyncIterator[None]:
    async with nullcontext() if stopping is None else stopping.waiting():
        yield


@asynccontextmanager
async def ending(
    stopping: Stopping | None, end: Callable[[RequestError], None]
) -> AsyncIterator[None]:
    with nullcontext() if stopping is None else stopping.ending(end):
        yield

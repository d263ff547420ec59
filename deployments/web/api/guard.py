"""Who may call the store's endpoints, and how often: programs and this server's own page."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.detached_tasks import create_detached_task
from deployments.ingress.generation.inflight_limit import InflightLimit
from deployments.ingress.http.clients import connection_of
from deployments.ingress.http.origin import check_host, check_origin
from deployments.ingress.settings import IngressSettings
from deployments.wire import ErrorKind, Refused

WHAT = "The chats of this server"
MAX_CLIENTS = 10_000  # whose writes are remembered
SLOT_STATE = "slot"  # where a request's state has its Slot

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Of one client. at_once: requests that work; waits: those that only wait for a change, as each
    open page does.
    """

    at_once: int = 8
    waits: int = 64
    writes: int = 20
    writes_s: float = 1.0  # seconds for so many


Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class Guard:
    def __init__(self, settings: IngressSettings, limits: RequestLimits) -> None:
        self._settings = settings
        self._inflight = InflightLimit(settings.max_inflight)
        self._at_once = _AtOnce(limits.at_once, "requests at once")
        self._waits = _AtOnce(limits.waits, "requests that wait")
        self._writes = WriteRate(limits.writes, limits.writes_s)

    def guarded(self, endpoint: Endpoint, *, writes: bool) -> Endpoint:
        """The endpoint, for those who may call it. Its answer is one of the client's requests until
        it is sent.
        """

        async def guarded(request: Request) -> ASGIApp:
            self._check_sender(request)
            client = self._client(request)
            if writes:
                self._writes.take(client)
            slot = Slot(lambda: self._enter(client))
            request.scope["state"][SLOT_STATE] = slot
            try:
                answer = await endpoint(request)
            except BaseException:
                slot.release()
                raise
            return _Leaving(answer, slot.release)

        return guarded

    @contextmanager
    def waiting(self, request: Request) -> Iterator[None]:
        """Within it the request only waits, and others of its client may work. Raises Refused."""
        with self._waits.entered(self._client(request)), _slot_of(request).given_back():
            yield

    def _check_sender(self, request: Request) -> None:
        check_origin(request, WHAT)
        if not self._settings.api_keys:  # a page under a rebound name has no key
            check_host(request, self._settings.hosts, WHAT)

    def _client(self, request: Request) -> str:
        return connection_of(request, sees_peers=self._settings.sees_peers)

    def _enter(self, client: str) -> Callable[[], None]:
        leave_all = self._inflight.acquire(client)
        try:
            leave_own = self._at_once.enter(client)
        except Refused:
            leave_all()
            raise

        def leave() -> None:
            leave_own()
            leave_all()

        return leave


class Slot:
    """One of the requests that a client may have at once."""

    def __init__(self, enter: Callable[[], Callable[[], None]]) -> None:
        """`enter` returns the way out, and raises Refused where there is no room."""
        self._enter = enter
        self._leave: Callable[[], None] | None = enter()

    def release(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    @contextmanager
    def given_back(self) -> Iterator[None]:
        self.release()
        yield
        self._leave = self._enter()


async def to_its_end(work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """The result of work that goes on when its client leaves: a connection in the midst of a
    statement could not be used again. The request ends with it, so that all that it holds counts
    for its client until then.
    """
    task = create_detached_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # which nobody else reads
        raise


def _slot_of(request: Request) -> Slot:
    slot: Slot = request.scope["state"][SLOT_STATE]
    return slot


@dataclass(slots=True)
class WriteRate:
    """A bucket a client: `n` tokens, full again after `seconds`. A write takes one."""

    n: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)  # tokens, at a time

    def take(self, client: str) -> None:
        """Raises Refused."""
        now = self.clock()
        tokens = self._tokens(client, now)
        if tokens < 1:
            message = (
                f"This client has written {self.n} times in {self.seconds:g} s; try again soon"
            )
            raise Refused.of_kind(ErrorKind.RATE_LIMITED, message)
        if len(self._buckets) >= MAX_CLIENTS:
            self._forget(now)
        self._buckets[client] = (tokens - 1, now)

    def _tokens(self, client: str, now: float) -> float:
        tokens, at = self._buckets.get(client, (float(self.n), now))
        return min(self.n, tokens + (now - at) * self.n / self.seconds)

    def _forget(self, now: float) -> None:
        """Those whose bucket is full again, or else all."""
        kept = {one: has for one, has in self._buckets.items() if self._tokens(one, now) < self.n}
        self._buckets = kept if len(kept) < MAX_CLIENTS else {}


class _AtOnce:
    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._held: Counter[str] = Counter()

    def enter(self, client: str) -> Callable[[], None]:
        """Returns the way out. Raises Refused."""
        if self._held[client] >= self._limit:
            message = f"This client has {self._limit} {self._what}; try again soon"
            raise Refused.of_kind(ErrorKind.RATE_LIMITED, message)
        self._held[client] += 1
        return lambda: self._leave(client)

    @contextmanager
    def entered(self, client: str) -> Iterator[None]:
        leave = self.enter(client)
        try:
            yield
        finally:
            leave()

    def _leave(self, client: str) -> None:
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]


class _Leaving:
    """An answer that is counted until it is sent."""

    def __init__(self, answer: ASGIApp, leave: Callable[[], None]) -> None:
        self._answer = answer
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            self._leave()

"""Who may call the store's endpoints, and how often: programs and this server's own page."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.generation.inflight_limit import InflightLimit
from deployments.ingress.http.clients import connection_of
from deployments.ingress.http.origin import check_host, check_origin
from deployments.ingress.settings import IngressSettings

WHAT = "The chats of this server"
MAX_CLIENTS = 10_000  # whose writes are remembered
SLOT_STATE = "slot"  # where a request's state has its Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits of one client.

    at_once: requests that work.
    waits: requests that only wait for a change, as each open page does.
    """

    at_once: int = 8
    waits: int = 64
    writes: int = 20
    writes_s: float = 1.0  # seconds for so many


Endpoint = Callable[[Request], Awaitable[ASGIApp]]
Leave = Callable[[], None]


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
            self._check_caller(request)
            client = self._client(request)
            if writes:
                self._writes.take(client)
            slot = Slot(await self._enter(client))
            request.scope["state"][SLOT_STATE] = slot
            try:
                answer = await endpoint(request)
            except BaseException:
                slot.release()
                raise
            return _Leaving(answer, slot.release)

        return guarded

    @asynccontextmanager
    async def waiting(self, request: Request) -> AsyncIterator[None]:
        """A context in which the request only waits, and others of its client may work.

        After it, the request is in line with them. Raises Refused.
        """
        client, slot = self._client(request), _slot_of(request)
        stop_waiting = await self._waits.enter(client)
        slot.release()
        try:
            yield
            slot.leave = await self._enter(client, in_line=True)
        finally:
            stop_waiting()

    def _check_caller(self, request: Request) -> None:
        check_origin(request, WHAT)
        if not self._settings.api_keys:  # a page under a rebound name has no key
            check_host(request, self._settings.hosts, WHAT)

    def _client(self, request: Request) -> str:
        return connection_of(request, sees_peers=self._settings.sees_peers)

    async def _enter(self, client: str, *, in_line: bool = False) -> Leave:
        leave_own = await self._at_once.enter(client, in_line=in_line)
        try:
            leave_all = self._inflight.acquire(client)
        except Refused:
            leave_own()
            raise

        def leave() -> None:
            leave_own()
            leave_all()

        return leave


@dataclass(slots=True)
class Slot:
    """One of the requests that a client may have at once."""

    leave: Leave | None

    def release(self) -> None:
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()


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
        """Forgets the clients whose bucket is full again, or else all."""
        kept = {
            client: has
            for client, has in self._buckets.items()
            if self._tokens(client, now) < self.n
        }
        self._buckets = kept if len(kept) < MAX_CLIENTS else {}


class _AtOnce:
    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._slots = WeakValueDictionary[str, asyncio.Semaphore]()  # of clients that hold some

    async def enter(self, client: str, *, in_line: bool = False) -> Leave:
        """Returns the way out. in_line: waits for a slot, which is else a Refused."""
        slots = self._slots.setdefault(client, asyncio.Semaphore(self._limit))
        if slots.locked() and not in_line:
            message = f"This client has {self._limit} {self._what}; try again soon"
            raise Refused.of_kind(ErrorKind.RATE_LIMITED, message)
        await slots.acquire()
        return slots.release


class _Leaving:
    """An answer that is counted until it is sent."""

    def __init__(self, answer: ASGIApp, leave: Leave) -> None:
        self._answer = answer
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            self._leave()

"""Bounds the requests in flight in a process, and each client's share of them."""

from collections import Counter
from collections.abc import Callable

from deployments.wire import ErrorKind, Refused

CLIENT_SHARE = 8  # one client may hold so many times what is free


class InflightLimit:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()
        self.inflight = 0

    def acquire(self, client: str) -> Callable[[], None]:
        """Returns the release, to be called once. Raises Refused."""
        free = self._limit - self.inflight
        if free <= 0:
            raise _overloaded(f"This server is answering {self._limit} requests already")
        if self._held[client] >= CLIENT_SHARE * free:
            message = f"This client has {self._held[client]} requests in flight, and others wait"
            raise _overloaded(message)
        self.inflight += 1
        self._held[client] += 1
        return lambda: self._release(client)

    def _release(self, client: str) -> None:
        self.inflight -= 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]


def _overloaded(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, f"{message}; try again soon")

"""Bounds the requests in flight in a process, and each client's share of them."""

from collections.abc import Callable

from deployments.contract.errors import ErrorKind, Refused
from deployments.serving.fair_share import FairShare


class InflightLimit:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares = FairShare(limit)

    @property
    def inflight(self) -> int:
        return self._shares.n_acquired

    def acquire(self, client: str) -> Callable[[], None]:
        """Returns the release, to be called once. Raises Refused."""
        if self._shares.is_full:
            raise _overloaded(f"This server is answering {self._limit} requests already")
        if self._shares.is_used_up(client):
            n_own = self._shares.acquired_by(client)
            raise _overloaded(f"This client has {n_own} requests in flight, and others wait")
        self._shares.acquire(client)
        return lambda: self._shares.release(client)


def _overloaded(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, f"{message}; try again soon")

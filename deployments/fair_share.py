"""Bounds what clients hold of a limited number of slots, so that none takes all that is left."""

from collections import Counter

MAX_OF_FREE = 8  # A client holds at most 8 times the free slots: 8 of 9 where it is alone.


class FairShare:
    """Counts the slots of `limit` that are held, by client. It has no lock of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_client: Counter[str] = Counter()
        self.n_held = 0

    def held_by(self, client: str) -> int:
        return self._by_client[client]

    @property
    def is_full(self) -> bool:
        return self.n_held >= self._limit

    def is_used_up(self, client: str) -> bool:
        """Whether the client holds as much as it may, for what is free now."""
        return self._by_client[client] >= MAX_OF_FREE * (self._limit - self.n_held)

    def acquire(self, client: str) -> None:
        """Takes a slot, even one beyond the limit."""
        self.n_held += 1
        self._by_client[client] += 1

    def release(self, client: str) -> None:
        """Gives back a slot that the client holds."""
        self.n_held -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]

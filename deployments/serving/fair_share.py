"""Bounds what clients acquire of limited slots or bytes, so that none takes all that is left."""

from collections import Counter

MAX_OF_FREE = 8  # A client acquires at most 8 times what is free: 8 of 9 where it is alone.


class FairShare:
    """Counts what is acquired of `limit`, by client. It has no lock of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_client: Counter[str] = Counter()
        self.n_acquired = 0

    def acquired_by(self, client: str) -> int:
        return self._by_client[client]

    @property
    def is_full(self) -> bool:
        return self.n_acquired >= self._limit

    def is_used_up(self, client: str) -> bool:
        """Whether the client has acquired as much as it may, for what is free now."""
        return self._by_client[client] >= MAX_OF_FREE * (self._limit - self.n_acquired)

    @property
    def most(self) -> int:
        """The most that a client may acquire while it is alone."""
        return MAX_OF_FREE * self._limit // (MAX_OF_FREE + 1)

    def has_room(self, client: str, n: int) -> bool:
        """Whether the client may take `n` more."""
        return self._by_client[client] + n <= MAX_OF_FREE * (self._limit - self.n_acquired - n)

    def acquire(self, client: str, n: int = 1) -> None:
        """Takes `n`, even beyond the limit."""
        self.n_acquired += n
        self._by_client[client] += n

    def release(self, client: str, n: int = 1) -> None:
        """Gives back `n` of what the client has acquired."""
        self.n_acquired -= n
        self._by_client[client] -= n
        if not self._by_client[client]:
            del self._by_client[client]

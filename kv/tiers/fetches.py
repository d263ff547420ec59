"""Pages on their way from a source, and how long the next ones will take, by those before."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from kv.arrivals import Arrival

FIRST_RATE = 200e6  # bytes a second, until some were read
RATE_AGE_S = 60.0  # after which a rate is measured anew
MEASURED_BYTES = 1 << 20  # that a fetch has at least which says how fast its source is


@dataclass(eq=False, slots=True)
class TierFetch:
    """Pages on their way to an arrival. is_done: no more of them will come."""

    arrival: Arrival
    n_bytes: int
    began: float
    n_read: int = 0
    is_done: bool = False


class FetchMeter:
    """Measures the fetches of one source, `latency_s` aside. One thread ends them, and the cache's
    thread calls the rest."""

    def __init__(self, latency_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._latency_s, self._clock = latency_s, clock
        self._under_way: dict[TierFetch, None] = {}
        self.rate = FIRST_RATE  # bytes a second
        self._measured_at = -RATE_AGE_S

    def begin(self, arrival: Arrival, n_bytes: int) -> TierFetch:
        """Returns a fetch that is under way from now on."""
        fetch = TierFetch(arrival, n_bytes, self._clock())
        self._under_way[fetch] = None
        return fetch

    def estimate_s(self, n_bytes: int) -> float | None:
        """Seconds in which so many bytes would come, by what was measured; None: nothing is fetched
        now, because a fetch before hangs."""
        now = self._clock()
        if any(fetch.is_done for fetch in self._under_way):
            self._under_way = {fetch: None for fetch in self._under_way if not fetch.is_done}
        queued = 0
        for fetch in self._under_way:
            if not fetch.arrival.is_open:
                return None
            queued += fetch.n_bytes - fetch.n_read
        if now - self._measured_at > RATE_AGE_S:
            self.rate = max(self.rate, FIRST_RATE)
        return self._latency_s + (queued + n_bytes) / self.rate

    def give_up(self, fetch: TierFetch) -> None:
        """Notes that a fetch took too long: the next ones will be expected to."""
        self._observe(fetch.n_read, self._clock() - fetch.began)

    def end(self, fetch: TierFetch, began: float) -> None:
        """Notes that a fetch is done, whose first byte was asked for at `began`."""
        if fetch.n_read >= MEASURED_BYTES and fetch.arrival.is_open:
            self._observe(fetch.n_read, self._clock() - began)
        fetch.is_done = True

    def _observe(self, n_bytes: int, seconds: float) -> None:
        rate = max(n_bytes, 1) / max(seconds, 1e-6)
        is_old = self._clock() - self._measured_at > RATE_AGE_S
        self.rate = rate if is_old else (self.rate + rate) / 2
        self._measured_at = self._clock()

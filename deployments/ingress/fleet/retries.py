"""How long and how often a request is tried: bounded, with backoff and jitter."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from deployments.ingress.fleet.serve_handles import unavailable

# Before each further attempt. A replica whose engine died is replaced after three health checks.
BACKOFF_S = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
JITTER_S = 0.05  # spreads the streams that lost one replica at the same time


class Retries:
    """The retries of one request. `patience_s` bounds each time without a replica.

    After an attempt that produced tokens, time and attempts are counted anew.
    """

    def __init__(
        self,
        patience_s: float,
        delays_s: Sequence[float] = BACKOFF_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience_s = patience_s
        self._delays_s = delays_s
        self._clock = clock
        self._failed_attempts = 0
        self.replica_found()

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._end - self._clock())

    def replica_found(self) -> None:
        """There is a replica: the time without one starts anew."""
        self._end = self._clock() + self._patience_s

    async def wait_after_loss(self, *, progressed: bool) -> None:
        """Raises Refused after too many attempts without progress."""
        if progressed:
            self._failed_attempts = 0
            self.replica_found()
        if self._failed_attempts == len(self._delays_s):
            raise unavailable(f"{self._failed_attempts + 1} attempts at this request were lost")
        delay = self._delays_s[self._failed_attempts]
        self._failed_attempts += 1
        await asyncio.sleep(delay * random.uniform(0.5, 1.5) + random.uniform(0, JITTER_S))

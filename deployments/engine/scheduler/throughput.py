"""Measures tokens a second while steps run: the average of the last minute, whoever asks when."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 60


@dataclass(slots=True)
class _Second:
    """The steps that ended in one second of the clock."""

    number: int
    tokens: int = 0
    seconds: float = 0.0


class Throughput:
    """The engine's thread observes; any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._past: deque[_Second] = deque()

    def observe(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens took so long. Steps without any do not count."""
        if not tokens:
            return
        now = int(self._clock())
        if not self._past or self._past[-1].number != now:
            self._past.append(_Second(now))
            while self._past[0].number <= now - WINDOW_S:
                self._past.popleft()
        self._past[-1].tokens += tokens
        self._past[-1].seconds += seconds

    def per_second(self) -> float:
        """Returns tokens a second; 0 without tokens in the last minute."""
        oldest = self._clock() - WINDOW_S
        recent = [second for second in tuple(self._past) if second.number > oldest]
        seconds = sum(second.seconds for second in recent)
        return sum(second.tokens for second in recent) / seconds if seconds else 0.0

"""Searches a stream of text for stop strings. The result is the same however the text is cut."""

from collections.abc import Sequence


class StopMatcher:
    """The match that ends first counts; of those that end together, the longest.

    Holds back the text that may begin a stop string, and no more. With `include` the text ends with
    the matched string, and nothing is held back.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        assert all(stops), "an empty stop string matches everywhere"
        self._stops = tuple(stops)
        self._starts = frozenset(stop[0] for stop in stops)
        self._include = include
        self._tail = ""  # the longest suffix of the text that begins a stop string
        self.matched: str | None = None

    def push(self, text: str) -> str:
        if not self._tail and self.matched is None and self._starts.isdisjoint(text):
            return text
        if self.matched is not None or not text:
            return ""
        window, returned = self._tail + text, len(self._tail) if self._include else 0
        match = self._first_match(window)
        if match is not None:
            end, start, self.matched = match
            return window[returned : end if self._include else start]
        self._tail = window[len(window) - max(_overlap(window, stop) for stop in self._stops) :]
        return window[returned : None if self._include else len(window) - len(self._tail)]

    def flush(self) -> str:
        """The text that was held back, at the end of the stream."""
        held, self._tail = self._tail, ""
        return "" if self._include or self.matched is not None else held

    def _first_match(self, window: str) -> tuple[int, int, str] | None:
        found = ((window.find(stop), stop) for stop in self._stops)
        return min(((at + len(stop), at, stop) for at, stop in found if at >= 0), default=None)


def _overlap(window: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that ends the window."""
    at = window.find(stop[0], max(0, len(window) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(window[at:]):
            return len(window) - at
        at = window.find(stop[0], at + 1)
    return 0

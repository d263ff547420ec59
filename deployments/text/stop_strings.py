"""Searches a stream of text for stop strings. The result is the same however the text is cut."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from deployments.text.dialects.parsing.pieces import CallArguments, ContentPiece, Piece


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

    @property
    def has_stops(self) -> bool:
        return bool(self._stops)

    @property
    def n_held_back(self) -> int:
        """Characters that are held back."""
        return 0 if self._include else len(self._tail)

    def flush(self) -> str:
        """The text that was held back, at the end of the stream."""
        held_back, self._tail = self._tail, ""
        return "" if self._include or self.matched is not None else held_back

    def _first_match(self, window: str) -> tuple[int, int, str] | None:
        found = ((window.find(stop), stop) for stop in self._stops)
        return min(((at + len(stop), at, stop) for at, stop in found if at >= 0), default=None)


class AnswerMatcher:
    """Searches the pieces of a reply other than thoughts: its text, and the arguments of each call.

    `n_cut` characters of the pieces are behind the cut, or belong to the stop string.
    """

    def __init__(self, matcher: StopMatcher) -> None:
        self._matcher = matcher
        self._searched: ContentPiece | CallArguments | None = None  # the last piece
        self.n_cut = 0

    def push(self, pieces: Iterable[Piece]) -> list[Piece]:
        return [part for piece in pieces for part in self._read(piece)]

    def _read(self, piece: Piece) -> Iterator[Piece]:
        if not _goes_on(self._searched, piece):
            yield from self.flush()
        if not isinstance(piece, ContentPiece | CallArguments):
            if self._matcher.matched is None:
                yield piece
            return
        held_back, self._searched = self._matcher.n_held_back, piece
        text = self._matcher.push(piece.text)
        if self._matcher.matched is not None:
            self.n_cut += held_back + len(piece.text) - len(text)
        if text:
            yield replace(piece, text=text)

    def flush(self) -> Iterator[Piece]:
        """The text that was held back, where another piece or the end follows."""
        searched, self._searched = self._searched, None
        if searched is not None and (text := self._matcher.flush()):
            yield replace(searched, text=text)


def _goes_on(searched: Piece | None, piece: Piece) -> bool:
    match searched, piece:
        case CallArguments(index), CallArguments(same):
            return index == same
    return type(searched) is type(piece)


def _overlap(window: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that ends the window."""
    at = window.find(stop[0], max(0, len(window) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(window[at:]):
            return len(window) - at
        at = window.find(stop[0], at + 1)
    return 0

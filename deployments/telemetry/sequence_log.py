"""One line in a replica's log for all sequences that an HTTP request has there.

A request may have thousands: texts to embed, choices, windows of a sound, which begin one after the
other. The line follows when none of them has run for a moment.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from deployments.contract.events import FinishReason, TokenEvent
from deployments.telemetry.logs import SERVE_LOG, request_id

PAUSE_S = 1.0  # without a sequence, after which no further one is waited for


@dataclass(slots=True, eq=False)
class _Told:
    """A request's sequences so far. endings: how many ended so. failure: the first one."""

    first: str  # sequence
    n_running: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    line: asyncio.TimerHandle | None = None


class SequenceLog:
    """Belongs to one event loop. Lines have the id of the HTTP request by themselves."""

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._told: dict[str, _Told] = {}

    def begin(self, sequence: str) -> None:
        told = self._told.setdefault(request_id() or sequence, _Told(sequence))
        told.n_running += 1
        if told.line is not None:
            told.line.cancel()
            told.line = None

    def end(self, sequence: str, last: TokenEvent | None) -> None:
        """`last` is the event that it ended with; None: it had none."""
        key = request_id() or sequence
        told = self._told[key]
        told.n_running -= 1
        told.endings[_ending(last)] += 1
        if last is not None and last.error is not None:
            told.failure = told.failure or last.error.message
        if not told.n_running:
            loop = asyncio.get_running_loop()
            told.line = loop.call_later(self._pause_s, self._write, key)

    def _write(self, key: str) -> None:
        told = self._told.pop(key)
        write = SERVE_LOG.warning if told.failure else SERVE_LOG.info
        write("%s", _line(told))


def _ending(last: TokenEvent | None) -> str:
    """One that does not end by itself was left: by its client, or at a stop string. An abort and
    the end of the stream both say so, and either may come first."""
    if last is None or last.finish_reason in (None, FinishReason.ABORT):
        return "was left"
    return "failed" if last.error is not None else f"ended: {last.finish_reason}"


def _line(told: _Told) -> str:
    failure = f": {told.failure}" if told.failure else ""
    n = told.endings.total()
    if n == 1:
        [ending] = told.endings
        return f"sequence {told.first} {ending}{failure}"
    counted = (f"{count} {_short(ending)}" for ending, count in told.endings.most_common())
    return f"{n} sequences, the first one {told.first}: {', '.join(counted)}{failure}"


def _short(ending: str) -> str:
    return ending.removeprefix("was ").removeprefix("ended: ")

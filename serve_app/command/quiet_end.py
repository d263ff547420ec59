"""Hides what Ray says at the end of calls that a stop has ended itself: no fault is meant."""

import sys
from typing import Any

ENDED_BY_US = "There are infinite retries remaining"  # Ray's words of such a call


class WithoutEndedCalls:
    """A stream that passes on all other lines."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._drops = False  # the end of a line that was not passed on

    def write(self, text: str) -> int:
        drops, self._drops = self._drops, ENDED_BY_US in text
        if self._drops or (drops and text == "\n"):
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hide_ended_calls() -> None:
    sys.stdout, sys.stderr = WithoutEndedCalls(sys.stdout), WithoutEndedCalls(sys.stderr)

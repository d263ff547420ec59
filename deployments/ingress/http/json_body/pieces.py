"""Parses JSON of megabytes in pieces, between which other threads run: they would stand still until
json's own parser has made the last of a million numbers.
"""

import json
import re
from collections.abc import Callable

PIECE = 1 << 16  # characters
MAX_MARKS = 1_000  # quotes and opening brackets: each costs a step in Python
WHITESPACE = re.compile(r"[ \t\n\r]*")
NOT_PLAIN = '"[]{}'  # what has an end of its own, and the end of a list
Pairs = list[tuple[str, object]]


class LargeJson:
    """Parses as `decoder` does, whose hook for objects is `make_object`."""

    def __init__(self, decoder: json.JSONDecoder, make_object: Callable[[Pairs], object]) -> None:
        self._decoder = decoder
        self._make_object = make_object

    def decode(self, text: str) -> object:
        """Raises json.JSONDecodeError, RecursionError and what the decoder's hooks raise.

        A text of more than MAX_MARKS is parsed at once: piece by piece it would take far more work.
        """
        if sum(map(text.count, ('"', "[", "{"))) > MAX_MARKS:
            whole: object = self._decoder.decode(text)
            return whole
        value, at = self._value(text, _skipped(text, 0))
        if at != len(text):
            raise json.JSONDecodeError("Extra data", text, at)
        return value

    def _value(self, text: str, at: int) -> tuple[object, int]:
        """The value that begins there, and where the next thing behind it does."""
        begin = text[at : at + 1]
        value: object
        if begin == "[":
            value, at = self._list(text, _skipped(text, at + 1))
        elif begin == "{":
            value, at = self._object(text, _skipped(text, at + 1))
        else:
            value, at = self._decoder.raw_decode(text, at)
        return value, _skipped(text, at)

    def _list(self, text: str, at: int) -> tuple[list[object], int]:
        values: list[object] = []
        is_last = text[at : at + 1] == "]"
        while not is_last:
            at = self._add_plain(values, text, at)
            value, at = self._value(text, _skipped(text, at))
            values.append(value)
            is_last = text[at : at + 1] == "]"
            at = at if is_last else _behind(",", text, at)
        return values, at + 1

    def _add_plain(self, values: list[object], text: str, at: int) -> int:
        """Adds numbers and constants, a piece at once. Returns where what follows them begins."""
        while True:
            found = (text.find(mark, at, at + PIECE) for mark in NOT_PLAIN)
            stop = min((index for index in found if index >= 0), default=at + PIECE)
            end = text.rfind(",", at, stop)
            if end < 0:
                return at
            plain = self._decoded_list(text, at, end)
            if not plain:
                raise json.JSONDecodeError("Expecting value", text, end)
            values += plain
            at = end + 1

    def _decoded_list(self, text: str, start: int, end: int) -> list[object]:
        try:
            plain: list[object] = self._decoder.decode(f"[{text[start:end]}]")
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(error.msg, text, start + error.pos - 1) from None
        return plain

    def _object(self, text: str, at: int) -> tuple[object, int]:
        pairs: Pairs = []
        is_last = text[at : at + 1] == "}"
        while not is_last:
            if text[at : at + 1] != '"':
                message = "Expecting property name enclosed in double quotes"
                raise json.JSONDecodeError(message, text, at)
            name, at = self._decoder.raw_decode(text, at)
            value, at = self._value(text, _behind(":", text, _skipped(text, at)))
            pairs.append((name, value))
            is_last = text[at : at + 1] == "}"
            at = at if is_last else _behind(",", text, at)
        return self._make_object(pairs), at + 1


def _behind(mark: str, text: str, at: int) -> int:
    """Returns where the next thing begins behind a mark that must be there."""
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting {mark!r} delimiter", text, at)
    return _skipped(text, at + 1)


def _skipped(text: str, at: int) -> int:
    found = WHITESPACE.match(text, at)
    assert found is not None
    return found.end()

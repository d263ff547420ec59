"""Vectors in an ingress: one text's stream of them, and their numbers as JSON and base64.

Each number of JSON is the float32 itself, widened: its decimal form names no other one.
"""

import sys
from array import array
from base64 import b64encode

from pydantic_core import to_json

from deployments.contract.events import CachedBySource, TokenEvent
from deployments.contract.outputs import VECTOR_ITEM_BYTES, Vectors
from deployments.text.stream import TextDelta

JSON_BYTES_PER_NUMBER = 22
BASE64_BYTES_PER_NUMBER = 6


class VectorStream:
    """The vectors of one sequence, in the place of its text."""

    may_stop = is_complete = False

    def __init__(self) -> None:
        self._cached: tuple[int, CachedBySource] = 0, ()

    def push(self, event: TokenEvent) -> TextDelta:
        self._cached = max(self._cached, (event.cached_tokens, event.cached_by_source))
        cached_tokens, by_source = self._cached
        return TextDelta(
            vectors=event.vectors,
            cached_tokens=cached_tokens,
            cached_by_source=by_source,
            finish_reason=event.finish_reason,
            error=event.error,
        )


def numbers(data: bytes) -> list[float]:
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def rows(vectors: Vectors) -> list[bytes]:
    """The bytes of each vector."""
    size = vectors.size * VECTOR_ITEM_BYTES
    return [vectors.data[start : start + size] for start in range(0, len(vectors.data), size)]


def json_of_row(data: bytes) -> bytes:
    return to_json(numbers(data), inf_nan_mode="null")


def json_of_rows(vectors: Vectors) -> bytes:
    """A list of lists."""
    return b"[%b]" % b",".join(map(json_of_row, rows(vectors)))


def base64_of(data: bytes) -> bytes:
    return b'"%b"' % b64encode(data)

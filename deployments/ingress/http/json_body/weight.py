"""Bounds what a JSON text becomes before it is parsed: objects take many times its bytes, and other
threads stand still while the parser makes them.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from deployments.contract.errors import ErrorKind, Refused

# In values: numbers, strings, true, false and null. A prompt of a million token ids fits.
MAX_WEIGHT = 1_100_000
PIECE_BYTES = 1 << 18
NAME_WEIGHT, LIST_WEIGHT, OBJECT_WEIGHT = 4, 4, 16
BACKSLASH, QUOTE, ESCAPED_BACKSLASH, ESCAPED_QUOTE = b"\\", b'"', b"\\\\", b'\\"'
TOO_HEAVY = (
    f"The body holds too much: at most {MAX_WEIGHT} values, of which the name of a field counts "
    f"{NAME_WEIGHT}, a list {LIST_WEIGHT} and an object {OBJECT_WEIGHT}"
)


def check_weight(body: bytes | bytearray) -> None:
    """Raises Refused for a body of more than MAX_WEIGHT.

    Only punctuation is counted, which takes milliseconds. Where that of strings matters, they are
    left out.
    """
    if _is_too_heavy(_pieces(body)) and _is_too_heavy(_without_strings(_pieces(body))):
        raise Refused.of_kind(ErrorKind.BODY_TOO_LARGE, TOO_HEAVY)


def _is_too_heavy(pieces: Iterable[bytes | bytearray]) -> bool:
    return any(weight > MAX_WEIGHT for weight in accumulate(map(_weight, pieces)))


def _pieces(body: bytes | bytearray) -> Iterator[bytes | bytearray]:
    """Other threads run between two. None ends within an escape sequence of two bytes."""
    start = 0
    while start < len(body):
        piece = body[start : start + PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(BACKSLASH))) % 2:
            piece = body[start : start + PIECE_BYTES + 1]
        start += len(piece)
        yield piece


def _without_strings(pieces: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """The pieces without what is between quotes."""
    is_inside = False
    for piece in pieces:
        if BACKSLASH in piece:
            piece = piece.replace(ESCAPED_BACKSLASH, b"").replace(ESCAPED_QUOTE, b"")
        parts = piece.split(QUOTE)
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0


def _weight(piece: bytes | bytearray) -> int:
    """The comma stands for the value before it."""
    containers = LIST_WEIGHT * piece.count(b"[") + OBJECT_WEIGHT * piece.count(b"{")
    return piece.count(b",") + NAME_WEIGHT * piece.count(b":") + containers

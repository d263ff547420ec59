"""Bounds what a JSON text becomes before it is parsed: objects take many times its bytes, and other
threads stand still while the parser makes them.
"""

from deployments.wire import ErrorKind, Refused

# In values: numbers, strings, true, false and null. A prompt of a million token ids fits.
MAX_WEIGHT = 1_100_000
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
    if _weight(body) <= MAX_WEIGHT:
        return
    if BACKSLASH in body:
        body = body.replace(ESCAPED_BACKSLASH, b"").replace(ESCAPED_QUOTE, b"")
    # To leave a string out takes an object, too.
    if body.count(QUOTE) > 2 * MAX_WEIGHT or _weight(_without_strings(body)) > MAX_WEIGHT:
        raise Refused.of_kind(ErrorKind.BODY_TOO_LARGE, TOO_HEAVY)


def _without_strings(body: bytes | bytearray) -> bytes:
    return b"".join(body.split(QUOTE)[::2])


def _weight(body: bytes | bytearray) -> int:
    """The comma stands for the value before it."""
    containers = LIST_WEIGHT * body.count(b"[") + OBJECT_WEIGHT * body.count(b"{")
    return body.count(b",") + NAME_WEIGHT * body.count(b":") + containers

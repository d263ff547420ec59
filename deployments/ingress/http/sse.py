"""Server-sent events as bytes: one compact JSON encoding, and frames that no client can misread."""

import json

EVENT_STREAM = {
    "content-type": "text/event-stream; charset=utf-8",  # without it some take text for Latin-1
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # to nginx
}
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

_quote = json.encoder.encode_basestring
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
# Legal inside JSON, but some clients' line readers split at them.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def encode(value: object) -> bytes:
    return _one_line(_encode(value))


def encode_text(text: str) -> bytes:
    """`encode` of a string, for the path every token takes."""
    return _one_line(_quote(text))


def data(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


def annotation(name: str, payload: str, frame: bytes) -> bytes:
    """Dynamo's side channel: an event's name and a comment, before the data of a `frame`.

    Dynamo sends no data. By the standard clients pass such an event over, but OpenAI's SDKs read
    its missing data as JSON and raise; so it takes a frame that says nothing.
    """
    return b"event: %b\n: %b\n%b" % (name.encode(), encode_text(payload), frame)


def _one_line(encoded: str) -> bytes:
    return (encoded if encoded.isascii() else encoded.translate(_LINE_ENDS)).encode()

"""Server-sent events as bytes: one compact JSON encoding, and frames that no client can misread."""

import json
from typing import NamedTuple

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


class StreamType(NamedTuple):
    """A kind of stream: the type of its body, and the frame that a silent one sends."""

    content_type: str
    keep_alive: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {
            "content-type": self.content_type,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # to nginx
        }

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as ASGI has them."""
        return [(name.encode(), value.encode()) for name, value in self.headers.items()]


# Without the character set some take text for Latin-1.
EVENT_STREAM = StreamType("text/event-stream; charset=utf-8", KEEP_ALIVE)

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

"""Encodes the events of a Responses stream, which are named and numbered."""

from collections.abc import Mapping, Sequence

from deployments.contract.errors import RequestError
from deployments.ingress.error_bodies import openai_error_fields
from deployments.ingress.http.sse import encode, encode_text

NO_LOGPROBS = b',"logprobs":[]'


class Events:
    """A unary answer has none: `muted` events are not encoded."""

    def __init__(self, *, muted: bool) -> None:
        self._muted = muted
        self._number = 0

    def event(self, kind: str, fields: Mapping[str, object]) -> bytes:
        if self._muted:
            return b""
        body = encode({"type": kind, **fields})
        return b"event: %b\ndata: %b%b" % (kind.encode(), body[:-1], self._tail())

    def response(self, kind: str, body: bytes) -> bytes:
        """An event of a response that is JSON already."""
        if self._muted:
            return b""
        named = kind.encode()
        head = b'event: %b\ndata: {"type":"%b","response":%b' % (named, named, body)
        return head + self._tail()

    def delta(self, head: bytes, text: str, logprobs: Sequence[object] | None = None) -> bytes:
        """A delta event whose bytes before the text are `head`: every token takes this path."""
        if self._muted:
            return b""
        if logprobs is None:
            fields = b""
        else:
            fields = b',"logprobs":' + encode(logprobs) if logprobs else NO_LOGPROBS
        return b"".join((head, encode_text(text), fields, self._tail()))

    def _tail(self) -> bytes:
        number, self._number = self._number, self._number + 1
        return b',"sequence_number":%d}\n\n' % number


def delta_head(kind: str, fields: Mapping[str, object]) -> bytes:
    body = encode({"type": kind, **fields})
    return b"event: %b\ndata: %b" % (kind.encode(), body[:-1]) + b',"delta":'


def error_event(error: RequestError) -> bytes:
    """The only event of a stream that fails before it begins. OpenAI's SDKs raise its `error`."""
    fields = openai_error_fields(error)
    named = {name: fields[name] for name in ("code", "message", "param")}
    return Events(muted=False).event("error", {**named, "error": fields})

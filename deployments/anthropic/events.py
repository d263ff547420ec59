"""Formats a reply as Anthropic's content blocks: events of a stream, or objects of a body."""

from collections.abc import Iterable

from pydantic_core import from_json

from deployments.anthropic.messages_conversation import public_id
from deployments.anthropic.thinking_signatures import sign
from deployments.ingress.http.sse import encode, encode_text
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    Thought,
)

# The TypeScript SDK's type requires `citations`, and other clients do not accept null there.
TEXT = b'{"type":"text","text":"","citations":[]}'
THINKING = b'{"type":"thinking","thinking":"","signature":""}'


def event(kind: str, payload: bytes) -> bytes:
    """`payload` has its `type`, as Anthropic's always do."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), payload)


PING = event("ping", b'{"type":"ping"}')


class BlockEvents:
    """The blocks of one stream, in the order of the reply. A block ends before the next begins."""

    def __init__(self, *, shows_thoughts: bool) -> None:
        self._shows_thoughts = shows_thoughts
        self._index = -1
        self._kind = ""
        self._thought: list[str] = []  # of the open block

    def write(self, pieces: Iterable[Piece]) -> bytes:
        return b"".join(map(self._write, pieces))

    def close(self) -> bytes:
        """The end of the open block, if there is one."""
        if not self._kind:
            return b""
        signed = self._signature() if self._kind == "thinking" else b""
        self._kind = ""
        stop = b'{"type":"content_block_stop","index":%d}' % self._index
        return signed + event("content_block_stop", stop)

    def _write(self, piece: Piece) -> bytes:
        match piece:
            case ContentPiece(text):
                opening = self._open("text", TEXT)
                return opening + self._delta(b"text_delta", b"text", text)
            case Thought(text):
                return self._open("thinking", THINKING) + self._think(text)
            case CallStart(_, call_id, name):
                head = encode(tool_use(public_id(call_id), name, {}))
                return self.close() + self._open("tool_use", head)
            case CallArguments(_, text):
                assert self._kind == "tool_use", "arguments without a call"
                return self._delta(b"input_json_delta", b"partial_json", text)

    def _open(self, kind: str, block: bytes) -> bytes:
        if self._kind == kind:
            return b""
        closing = self.close()
        self._kind = kind
        self._index += 1
        payload = b'{"type":"content_block_start","index":%d,"content_block":%b}'
        return closing + event("content_block_start", payload % (self._index, block))

    def _think(self, text: str) -> bytes:
        self._thought.append(text)
        if not self._shows_thoughts:
            return b""
        return self._delta(b"thinking_delta", b"thinking", text)

    def _signature(self) -> bytes:
        thought, self._thought = "".join(self._thought), []
        signature = sign(thought, shown=self._shows_thoughts)
        return self._delta(b"signature_delta", b"signature", signature)

    def _delta(self, kind: bytes, field: bytes, text: str) -> bytes:
        payload = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}'
        values = (self._index, kind, field, encode_text(text))
        return event("content_block_delta", payload % values)


def content_blocks(pieces: Iterable[Piece], *, shows_thoughts: bool) -> list[dict[str, object]]:
    """The blocks of a whole reply. Adjacent pieces of one kind are already joined."""
    blocks: list[dict[str, object]] = []
    for piece in pieces:
        match piece:
            case ContentPiece(text):
                blocks.append({"type": "text", "text": text, "citations": []})
            case Thought(text):
                signature = sign(text, shown=shows_thoughts)
                shown = text if shows_thoughts else ""
                blocks.append({"type": "thinking", "thinking": shown, "signature": signature})
            case CallStart(_, call_id, name):
                blocks.append(tool_use(public_id(call_id), name, {}))
            case CallArguments(_, text):
                blocks[-1]["input"] = arguments_object(text)
    return blocks


def tool_use(call_id: str, name: str, arguments: object) -> dict[str, object]:
    caller = {"type": "direct"}
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, "caller": caller}


def arguments_object(text: str) -> object:
    """Arguments that are cut off are completed as the SDKs complete them."""
    try:
        found = from_json(text, allow_partial=True, allow_inf_nan=False)
        encode(found)
    except ValueError:  # numbers that are not finite, surrogates
        return {}
    return found if isinstance(found, dict) else {}

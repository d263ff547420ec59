"""Formats the pieces of a reply as OpenAI's deltas, and as the message that they add up to."""

from collections.abc import Collection, Iterable

from deployments.contract.events import FinishReason
from deployments.ingress.http.sse import encode_text
from deployments.openai.fields.custom_tools import CalledText, text_of_call
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    Thought,
)
from deployments.text.reply import CallTracker, ReplyCall, fold_reply

# Reasoning has two field names. This is DeepSeek's: SGLang and llama-server write it, and clients
# of older vLLM read it. Requests may also use newer vLLM's `reasoning`.
REASONING_FIELD = "reasoning_content"
ROLE = b'{"role":"assistant","content":"","refusal":null}'


class ChatDeltas:
    """The deltas of one choice. Calls of the tools named in `custom` have a text."""

    def __init__(self, custom: Collection[str]) -> None:
        self._custom = custom
        self._texts: dict[int, CalledText] = {}

    def format(self, piece: Piece) -> bytes:
        """b"" for none yet."""
        match piece:
            case CallStart(index, call_id, name) if name in self._custom:
                self._texts[index] = CalledText()
                parts = (index, encode_text(call_id), encode_text(name))
                custom = b'"type":"custom","custom":{"name":%b,"input":""}'
                return (b'{"tool_calls":[{"index":%d,"id":%b,' + custom + b"}]}") % parts
            case CallArguments(index, text) if index in self._texts:
                return self._more(index, self._texts[index].push(text))
        return _delta_of(piece)

    def end(self) -> list[bytes]:
        """The rest of calls whose arguments have another form."""
        rests = ((index, text.finish()) for index, text in self._texts.items())
        return [self._more(index, rest) for index, rest in rests if rest]

    def _more(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        return b'{"tool_calls":[{"index":%d,"custom":{"input":%b}}]}' % (index, encode_text(text))


def _delta_of(piece: Piece) -> bytes:
    match piece:
        case ContentPiece(text):
            return b'{"content":%b}' % encode_text(text)
        case Thought(text):
            return b'{"%b":%b}' % (REASONING_FIELD.encode(), encode_text(text))
        case CallStart(index, call_id, name):
            parts = (index, encode_text(call_id), encode_text(name))
            function = b'"type":"function","function":{"name":%b,"arguments":""}'
            return (b'{"tool_calls":[{"index":%d,"id":%b,' + function + b"}]}") % parts
        case CallArguments(index, text):
            arguments = b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
            return arguments % (index, encode_text(text))


def message_of(pieces: Iterable[Piece], custom: Collection[str]) -> dict[str, object]:
    """The content is null where there are only calls, as with OpenAI. `custom` as ChatDeltas'."""
    reply = fold_reply(pieces)
    silent = reply.calls and not reply.content
    fields: dict[str, object] = {
        "role": "assistant",
        "content": None if silent else reply.content,
        "refusal": None,
    }
    if reply.thought:
        fields[REASONING_FIELD] = reply.thought
    if reply.calls:
        fields["tool_calls"] = [_call_of(call, call.name in custom) for call in reply.calls]
    return fields


def _call_of(call: ReplyCall, is_custom: bool) -> dict[str, object]:
    if is_custom:
        called = {"name": call.name, "input": text_of_call(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": called}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def finish_reason(reason: FinishReason, call_tracker: CallTracker) -> str:
    """A reply that ends with whole calls has the reason "tool_calls"."""
    return (
        "tool_calls" if reason is FinishReason.STOP and call_tracker.ends_in_call else reason.value
    )

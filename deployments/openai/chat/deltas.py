"""Formats the pieces of a reply as OpenAI's deltas, and as the message that they add up to."""

from collections.abc import Iterable

from deployments.ingress.http.sse import encode_text
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    Content,
    Piece,
    Thought,
)
from deployments.text.reply import CallTracker, fold_reply
from deployments.wire import FinishReason

# Reasoning has two field names. This is DeepSeek's: SGLang and llama-server write it, and clients
# of older vLLM read it. Requests may also use newer vLLM's `reasoning`.
REASONING_FIELD = "reasoning_content"
ROLE = b'{"role":"assistant","content":"","refusal":null}'


def delta_of(piece: Piece) -> bytes:
    match piece:
        case Content(text):
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


def message_of(pieces: Iterable[Piece]) -> dict[str, object]:
    """The content is null where there are only calls, as with OpenAI."""
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
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.calls
        ]
    return fields


def finish_reason(reason: FinishReason, call_tracker: CallTracker) -> str:
    """A reply that ends with whole calls has the reason "tool_calls"."""
    return (
        "tool_calls" if reason is FinishReason.STOP and call_tracker.ends_in_call else reason.value
    )

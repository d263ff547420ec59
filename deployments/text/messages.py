"""Messages of a conversation as chat templates take them."""

from collections.abc import Mapping, Sequence
from typing import cast

Message = Mapping[str, object]


def calls_of(message: Message) -> Sequence[Message]:
    return cast(Sequence[Message], message.get("tool_calls") or ())


def function_of(call: Message) -> Message:
    """Its `name`, and its `arguments` as an object."""
    return cast(Message, call["function"])

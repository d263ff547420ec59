"""Ids of calls and of their results, as the templates of a dialect take them."""

from collections.abc import Mapping, Sequence
from typing import cast

from deployments.text.dialects.dialect import Dialect

Message = Mapping[str, object]


def with_template_ids(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """The messages of a conversation that may have begun with a model of another dialect."""
    return [_with_template_ids(message, dialect) for message in messages]


def _with_template_ids(message: Message, dialect: Dialect) -> Message:
    answered = message.get("tool_call_id")
    if isinstance(answered, str):
        return {**message, "tool_call_id": dialect.template_id(answered)}
    calls = cast(Sequence[Message], message.get("tool_calls") or ())
    if not calls:
        return message
    return {**message, "tool_calls": [_named(call, dialect) for call in calls]}


def _named(call: Message, dialect: Dialect) -> Message:
    made = call.get("id")
    return call if made is None else {**call, "id": dialect.template_id(str(made))}

"""Gives calls and their results the ids that the templates of a dialect accept."""

from collections.abc import Sequence
from itertools import count

from deployments.text.chat.messages import Message, calls_of, function_of
from deployments.text.dialects.dialect import Dialect


def with_template_ids(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """The messages with ids of this dialect: the conversation may have begun with another model.
    Calls without an id get none.
    """
    indices = count()
    ids: dict[object, str] = {}  # by the given id: the last call with it, as some models reuse ids

    def template_id(given: object, name: object) -> str:
        ids[given] = dialect.template_id(str(given), str(name), next(indices))
        return ids[given]

    def with_call_id(call: Message) -> Message:
        if "id" not in call:
            return call
        return {**call, "id": template_id(call["id"], function_of(call)["name"])}

    def with_ids(message: Message) -> Message:
        if "tool_call_id" in message:
            given, name = message["tool_call_id"], message.get("name")
            return {**message, "tool_call_id": ids.get(given) or template_id(given, name)}
        calls = calls_of(message)
        return {**message, "tool_calls": list(map(with_call_id, calls))} if calls else message

    return list(map(with_ids, messages))

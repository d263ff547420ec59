"""Ids of calls and of their results, as the templates of a dialect take them."""

from collections.abc import Sequence
from itertools import count

from deployments.text.chat.messages import Message, calls_of, function_of
from deployments.text.dialects.dialect import Dialect


def with_template_ids(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """The messages of a conversation that may have begun with a model of another dialect; what has
    no id gets none."""
    indices = count()
    ids: dict[object, str] = {}  # of the last call with each id: some number anew in every reply

    def template_id(given: object, name: object) -> str:
        ids[given] = dialect.template_id(str(given), str(name), next(indices))
        return ids[given]

    def named_call(call: Message) -> Message:
        if "id" not in call:
            return call
        return {**call, "id": template_id(call["id"], function_of(call)["name"])}

    def named(message: Message) -> Message:
        if "tool_call_id" in message:
            given, name = message["tool_call_id"], message.get("name")
            return {**message, "tool_call_id": ids.get(given) or template_id(given, name)}
        calls = calls_of(message)
        return {**message, "tool_calls": list(map(named_call, calls))} if calls else message

    return list(map(named, messages))

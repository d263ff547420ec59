"""Messages of a conversation as chat templates take them: rewritten for those that take fewer
kinds, and with ids of calls that they accept.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import cast

from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.parsing.literals import to_json

Message = Mapping[str, object]
SYSTEM_ROLES = ("system", "developer")


def calls_of(message: Message) -> Sequence[Message]:
    return cast(Sequence[Message], message.get("tool_calls") or ())


def function_of(call: Message) -> Message:
    """Its `name`, and its `arguments` as an object."""
    return cast(Message, call["function"])


def joined(messages: Iterable[Message], roles: Collection[str]) -> list[Message]:
    """Joins adjacent messages of one role, if it is among `roles`, with a newline between them."""
    runs: list[list[Message]] = []
    for message in messages:
        role = message["role"]
        if role in roles and runs and runs[-1][0]["role"] == role:
            runs[-1].append(message)
        else:
            runs.append([message])
    return [_joined_run(run) for run in runs]


def _joined_run(run: Sequence[Message]) -> Message:
    if len(run) == 1:
        return run[0]
    return {**run[0], "content": "\n".join(str(message["content"]) for message in run)}


def forms(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The messages as they are, then forms of them that more and more templates accept."""
    yield messages
    in_text = with_text_arguments(messages)
    if in_text != list(messages):
        yield in_text
    for rewrite in (
        with_one_system_message,
        with_one_call_per_message,
        with_one_text_before_calls,
        without_system_message,
    ):
        form = rewrite(messages)
        if form != list(messages):
            yield form
        messages = form


def with_one_system_message(messages: Sequence[Message]) -> list[Message]:
    """Joins the system messages at the start. Later ones become messages of the user."""
    has_begun, rewritten = False, list[Message]()
    for message in messages:
        is_system = message["role"] in SYSTEM_ROLES
        has_begun = has_begun or not is_system
        role = "user" if has_begun else "system"
        rewritten.append({**message, "role": role} if is_system else message)
    return joined(rewritten, ("system", "user"))


def with_one_call_per_message(messages: Sequence[Message]) -> list[Message]:
    """Splits a reply with several calls into messages of one call. Its result follows each, if it
    came before the user's next message.
    """
    groups: list[list[Message]] = []  # a call and its result, or another message
    group_of_call: dict[object, list[Message]] = {}  # by the id of a call without a result yet
    for message in messages:
        calls = calls_of(message)
        if message["role"] == "tool" and message.get("tool_call_id") in group_of_call:
            group_of_call[message["tool_call_id"]].append(message)
            continue
        if message["role"] == "user":
            group_of_call.clear()
        groups.append([{**message, "tool_calls": calls[:1]} if calls else message])
        groups += [
            [{"role": "assistant", "content": "", "tool_calls": [call]}] for call in calls[1:]
        ]
        for call, group in zip(reversed(calls), reversed(groups), strict=False):
            group_of_call[call.get("id")] = group
    return list(chain.from_iterable(groups))


def with_text_arguments(messages: Sequence[Message]) -> list[Message]:
    """Calls with their arguments as JSON text: older templates concatenate strings."""
    return [
        {**message, "tool_calls": list(map(_with_text, calls_of(message)))}
        if calls_of(message)
        else message
        for message in messages
    ]


def _with_text(call: Message) -> Message:
    function = function_of(call)
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else to_json(arguments)
    return {**call, "function": {**function, "arguments": text}}


def with_one_text_before_calls(messages: Sequence[Message]) -> list[Message]:
    """The content between a thought and a call becomes the end of the thought."""
    return list(map(_with_content_in_thought, messages))


def _with_content_in_thought(message: Message) -> Message:
    thought, content = message.get("reasoning_content"), message.get("content")
    if not (thought and content and calls_of(message)):
        return message
    return {**message, "reasoning_content": f"{thought}\n\n{content}", "content": ""}


def without_system_message(messages: Sequence[Message]) -> list[Message]:
    """The system message at the start becomes the start of the user's first message."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return [{**system, "role": "user"}, *rest]
    first, *rest = rest
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


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

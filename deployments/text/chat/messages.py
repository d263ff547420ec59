"""Messages of a conversation as chat templates take them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

Message = Mapping[str, object]


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

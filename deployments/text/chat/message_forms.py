"""One conversation for templates that know fewer roles: the same words in messages they take."""

from collections.abc import Iterator, Sequence
from itertools import chain

from deployments.text.chat.messages import Message, calls_of, function_of, joined
from deployments.text.dialects.parsing.literals import to_json

INSTRUCTING = ("system", "developer")


def forms(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The messages as they are, then each form of them that more templates take."""
    yield messages
    in_text = with_text_arguments(messages)
    if in_text != list(messages):
        yield in_text
    for narrow in (
        with_one_system_message,
        with_one_call_per_message,
        with_one_text_before_calls,
        without_system_message,
    ):
        form = narrow(messages)
        if form != list(messages):
            yield form
        messages = form


def with_one_system_message(messages: Sequence[Message]) -> list[Message]:
    """The first instructions in one message, and later ones in their places as the user's words."""
    begun, told = False, list[Message]()
    for message in messages:
        instructs = message["role"] in INSTRUCTING
        begun = begun or not instructs
        told.append({**message, "role": "user" if begun else "system"} if instructs else message)
    return joined(told, ("system", "user"))


def with_one_call_per_message(messages: Sequence[Message]) -> list[Message]:
    """A message for each call of a reply that has several, and behind it its result, if that came
    before the user's next words."""
    spread: list[list[Message]] = []
    answered: dict[object, list[Message]] = {}  # by the id of a call that may be
    for message in messages:
        calls = calls_of(message)
        if message["role"] == "tool" and message.get("tool_call_id") in answered:
            answered[message["tool_call_id"]].append(message)
            continue
        if message["role"] == "user":
            answered.clear()
        spread.append([{**message, "tool_calls": calls[:1]} if calls else message])
        spread += [
            [{"role": "assistant", "content": "", "tool_calls": [call]}] for call in calls[1:]
        ]
        for call, place in zip(reversed(calls), reversed(spread), strict=False):
            answered[call.get("id")] = place
    return list(chain.from_iterable(spread))


def with_text_arguments(messages: Sequence[Message]) -> list[Message]:
    """Calls with their arguments as JSON, as clients write them: older templates join texts."""
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
    """What was said between a thought and a call as the end of the thought."""
    return list(map(_thought_alone, messages))


def _thought_alone(message: Message) -> Message:
    thought, said = message.get("reasoning_content"), message.get("content")
    if not (thought and said and calls_of(message)):
        return message
    return {**message, "reasoning_content": f"{thought}\n\n{said}", "content": ""}


def without_system_message(messages: Sequence[Message]) -> list[Message]:
    """The instructions that begin the messages as the beginning of the user's words."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    told, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return [{**told, "role": "user"}, *rest]
    asked, *rest = rest
    return [{**asked, "content": f"{told['content']}\n\n{asked['content']}"}, *rest]

"""Guards what fills a template, so that text which spells a control token stays text."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from deployments.text.chat.messages import Message
from deployments.text.dialects.dialect import Dialect
from deployments.text.tokens.control_tokens import ControlTokens
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool

SAID = ("content", "reasoning_content")  # fields that a model wrote itself


def guarded_messages(
    messages: Sequence[Message], dialect: Dialect, tokenizer: TextTokenizer
) -> list[Message]:
    written = _written(dialect, tokenizer)
    return [_guarded(message, written, tokenizer.control) for message in messages]


def _guarded(message: Message, written: Collection[str], control: ControlTokens) -> Message:
    found = {**cast(Message, control.guard(message)), "role": message["role"]}
    if message["role"] != "assistant":
        return found
    said = {name: message[name] for name in SAID if isinstance(message.get(name), str)}
    return found | {name: control.guard_text(str(text), written) for name, text in said.items()}


def _written(dialect: Dialect, tokenizer: TextTokenizer) -> frozenset[str]:
    """The marks that a reply's text may have, which come back in what the assistant said. No other
    special tokens are in the text of a reply.
    """
    thoughts = dialect.thought_marks or ()
    if not all(tokenizer.mark_id(mark) is not None for mark in thoughts):
        thoughts = ()
    plain = (mark for mark in dialect.marks if tokenizer.special_id(mark) is None)
    return frozenset([*thoughts, *plain])


def guarded_tools(tools: Sequence[Tool], control: ControlTokens) -> tuple[Tool, ...]:
    return tuple(_guarded_tool(tool, control) for tool in tools)


def _guarded_tool(tool: Tool, control: ControlTokens) -> Tool:
    return replace(
        tool,
        name=control.guard_name(tool.name),
        description=control.guard_text(tool.description),
        parameters=cast(Mapping[str, object], control.guard(tool.parameters)),
    )

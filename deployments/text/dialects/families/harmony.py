"""gpt-oss: a reply is messages with headers, which say whether they are thoughts, calls or answers.

Text outside of any message is content. Without split thoughts every message that is no call stays
in the content as it was written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.text.dialects.call_grammar import (
    calls_lark,
    headed_call,
    literal,
    through,
    without,
)
from deployments.text.dialects.dialect import Dialect, Listening, Mark
from deployments.text.dialects.parsing.incremental import SPACE, NoCall, Sink, Steps, ignore, marks
from deployments.text.dialects.parsing.json_calls import named_call
from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.dialects.parsing.reading import PlainParser, Reading, ScriptedParser
from deployments.text.tool import Tool

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
RECIPIENT_FIRST = " to="  # a header goes on from the prompt's `<|start|>assistant`
MAX_HEADER = 512
BOUNDS = marks(END, CALL, RETURN, START, CHANNEL)
CHANNEL_NAME = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class Harmony(Dialect):
    name = "harmony"
    thought_marks = (f"{CHANNEL}analysis{MESSAGE}", END)
    marks = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
    breaks = (CALL, RETURN, START, CHANNEL)
    one_call_each = True

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return CHANNEL in template and MESSAGE in template

    def parser(self, listening: Listening) -> ReplyParser:
        if not listening.tools and not listening.split_thoughts:
            return PlainParser()
        reading = Reading({tool.name: tool for tool in listening.tools}, self.call_id)
        return ScriptedParser(reading, Messages(listening).read)

    def kept_marks(self, listening: Listening) -> tuple[str, ...]:
        """All: without them headers would run into the text."""
        return self.marks

    def calls(self, tools: Sequence[Tool], parallel: bool, mark: Mark, marked: bool = False) -> str:
        """One call: the token behind its arguments ends the model's turn."""

        def head(name: str) -> str:
            recipient = literal(f"commentary to=functions.{name} ")
            return f'{_begun(mark)} {recipient} {mark(CONSTRAIN)} "json" {mark(MESSAGE)}'

        return f"calls: listed\n{calls_lark('call', tools, headed_call(head))}"

    def reply(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        """Thoughts and remarks, then a call or the answer."""
        lines = [
            "reply: said* (final | calls)",
            f'said: {_begun(mark)} ("analysis" | "commentary") {mark(MESSAGE)} body',
            f'final: {_begun(mark)} "final" {mark(MESSAGE)} TEXT',
            through("body", "TEXT", mark(END)),
            f"TEXT: {without(END, *self.breaks)}",
            self.calls(tools, parallel, mark),
        ]
        return "\n".join(lines)


def _begun(mark: Mark) -> str:
    """Lark of how a message begins; of the first one the prompt has a part already."""
    return f'({mark(START)} "assistant")? {mark(CHANNEL)}'


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before a message; `written` is all of it."""

    written: str

    @property
    def is_thought(self) -> bool:
        channel = CHANNEL_NAME.search(self.written)
        return channel is not None and channel[1] == "analysis" and not self.recipient

    @property
    def recipient(self) -> str:
        found = RECIPIENT.search(self.written)
        return "" if found is None else found[1].removeprefix("functions.")


class Messages:
    """The script of one reply."""

    def __init__(self, listening: Listening) -> None:
        self._split = listening.split_thoughts
        self._thinking = listening.thinking
        self._marked = listening.marked

    def read(self, reading: Reading) -> Steps[None]:
        if self._thinking:
            opened = yield from self._body(reading, Header(f"{CHANNEL}analysis"), "")
        else:
            opened = yield from self._start(reading)
        while not reading.source.exhausted or opened:
            if opened:
                opened = yield from self._message(reading, opened)
            elif self._marked:
                yield from reading.source.rest(reading.content)
            else:
                looked_for = marks(START, CHANNEL)
                opened, newlines = yield from reading.source.until(looked_for, reading.content)
                reading.content(newlines)

    def _start(self, reading: Reading) -> Steps[str]:
        opened = yield from reading.source.one_of(RECIPIENT_FIRST)
        space: list[str] = []
        if not opened:
            yield from reading.source.run(SPACE, space.append)
            opened = yield from reading.source.one_of(START, CHANNEL)
        reading.content("" if opened and self._split else "".join(space))
        return opened

    def _message(self, reading: Reading, opened: str) -> Steps[str]:
        """The mark of the next message, when one follows at once."""
        source = reading.source
        source.keep()
        try:
            rest, _ = yield from source.upto(MAX_HEADER, MESSAGE)
        except NoCall:
            reading.content(opened)
            source.back()
            return ""
        header = Header(opened + rest)
        if header.recipient in reading.tools:
            return (yield from self._call(reading, header.recipient, opened))
        source.drop()
        return (yield from self._body(reading, header, header.written + MESSAGE))

    def _body(self, reading: Reading, header: Header, written: str) -> Steps[str]:
        """A message that is no call, of which `written` has been read."""
        raw = not self._split or bool(header.recipient)
        sink = reading.thought if header.is_thought and not raw else reading.content
        sink(written if raw else "")
        found, newlines = yield from reading.source.until(BOUNDS, sink)
        sink(newlines)
        if found in (START, CHANNEL):
            return found
        sink(found if raw else "")
        return (yield from self._next(reading, sink if raw else ignore))

    def _next(self, reading: Reading, sink: Sink) -> Steps[str]:
        """The mark of a message that follows with nothing but whitespace between."""
        yield from reading.source.run(SPACE, sink)
        return (yield from reading.source.one_of(START, CHANNEL))

    def _call(self, reading: Reading, name: str, opened: str) -> Steps[str]:
        source, calls = reading.source, reading.calls
        try:
            yield from named_call(reading, name)
            yield from source.close(CALL, END, RETURN)
        except NoCall:
            reading.content(opened if reading.calls == calls else "")
            if not source.back() and source.short:
                yield from source.rest(ignore)  # the text ended within the call
            return ""
        source.drop()
        return (yield from self._next(reading, ignore))

"""gpt-oss: a reply is messages with headers, which say whether they are thoughts, calls or answers.

Text outside of any message is content. Without split thoughts every message that is no call stays
in the content as it was written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.contract.grammar_triggers import TriggerMode
from deployments.text.dialects.call_grammar import (
    call_rules,
    headed_call_body,
    literal,
)
from deployments.text.dialects.dialect import Dialect, Opening, ReplyContext, WriteMark
from deployments.text.dialects.parsing.incremental import (
    SPACE,
    Incremental,
    NotACall,
    Sink,
    discard,
    mark_matcher,
)
from deployments.text.dialects.parsing.json_calls import read_named_call
from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.dialects.parsing.reading import IncrementalParser, PlainParser, ReplyReader
from deployments.text.tool import Tool

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
RECIPIENT_FIRST = " to="  # a header goes on from the prompt's `<|start|>assistant`
NAMESPACE = "functions."
MAX_HEADER = 512
BOUNDS = mark_matcher(END, CALL, RETURN, START, CHANNEL)
CHANNEL_NAME = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class Harmony(Dialect):
    name = "harmony"
    thought_marks = (f"{CHANNEL}analysis{MESSAGE}", END)
    marks = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
    thought_breaks = (CALL, RETURN, START, CHANNEL)
    one_call_per_message = True

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return CHANNEL in template and MESSAGE in template

    def parser(self, context: ReplyContext) -> ReplyParser:
        if not context.tools and not context.split_thoughts:
            return PlainParser()
        reader = ReplyReader({tool.name: tool for tool in context.tools}, self.call_id)
        return IncrementalParser(reader, Messages(context).read)

    def kept_marks(self, context: ReplyContext) -> tuple[str, ...]:
        """All marks, because without them headers and text are not separate."""
        return self.marks

    def framed_answer(self, answer: str, context: ReplyContext, mark: WriteMark) -> str:
        if not context.split_thoughts:
            return answer
        header = f'{mark(CHANNEL)} "final" {mark(MESSAGE)}'
        return f'(({mark(START)} "assistant")? {header})? {answer}'

    def calls_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark, marked: bool = False
    ) -> str:
        """One call: the token after its arguments ends the model's turn."""

        def head(name: str) -> str:
            recipient = literal(f"commentary to={NAMESPACE}{name} ")
            return f'{_begun(mark)} {recipient} {mark(CONSTRAIN)} "json" {mark(MESSAGE)}'

        return f"calls: listed\n{call_rules('call', tools, headed_call_body(head))}"

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        """A tool's name as the recipient of a message opens a call. Each of the texts that may
        follow the name has a rule for the rest of the header.
        """
        message, constrain = mark(MESSAGE), mark(CONSTRAIN)
        typed = f'({constrain}? "json")? {message}'
        rests = {
            " ": typed,
            CHANNEL: f'"commentary" " "? {typed}',
            CONSTRAIN: f'"json" {message}',
            MESSAGE: "",
        }
        lines, openings = [self.calls_lark(tools, parallel, mark)], list[Opening]()
        for number, (follows, rest) in enumerate(rests.items()):
            calls = [
                f"{literal(_named(tool))} {rest} call_{index}_arguments"
                for index, tool in enumerate(tools)
            ]
            lines.append(f"header_{number}: {' | '.join(calls)}\n")
            openings += [
                Opening(f"to={prefix}{tool.name}{follows}", f"header_{number}", _named(tool))
                for tool in tools
                for prefix in (NAMESPACE, "")
            ]
        return "".join(lines), tuple(openings)

    def trigger_modes(self, context: ReplyContext) -> tuple[TriggerMode, ...]:
        triggers = tuple(
            (opening.mark, ~index) for index, opening in enumerate(context.openings or ())
        )
        names = ["first", "start", "outside", "header", "body"]
        if context.thinking:  # the search starts in the first mode
            names.sort(key=lambda name: name != "body")
        number = {name: index for index, name in enumerate(names)}
        begun = tuple((mark, number["header"]) for mark in (START, CHANNEL))
        ended = tuple((mark, number["start"]) for mark in (END, CALL, RETURN))
        recipients = tuple((f" {mark}", trigger) for mark, trigger in triggers)
        modes = {
            "first": TriggerMode(marks=recipients, otherwise=number["start"], skips_space=False),
            "start": TriggerMode(marks=begun, otherwise=number["outside"]),
            "outside": TriggerMode(marks=begun),
            "header": TriggerMode(marks=(*triggers, (MESSAGE, number["body"]))),
            "body": TriggerMode(marks=(*begun, *ended)),
        }
        return tuple(modes[name] for name in names)


def _named(tool: Tool) -> str:
    """The text that a call's tool is known by in Lark."""
    return f"{tool.name}\n"


def _begun(mark: WriteMark) -> str:
    """Lark of the start of a message. The prompt already has a part of the first one's."""
    return f'({mark(START)} "assistant")? {mark(CHANNEL)}'


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a message. `written` is its text."""

    written: str

    @property
    def is_thought(self) -> bool:
        channel = CHANNEL_NAME.search(self.written)
        return channel is not None and channel[1] == "analysis" and not self.recipient

    @property
    def recipient(self) -> str:
        found = RECIPIENT.search(self.written)
        return "" if found is None else found[1].removeprefix(NAMESPACE)


class Messages:
    """The script that reads one reply."""

    def __init__(self, context: ReplyContext) -> None:
        self._split = context.split_thoughts
        self._thinking = context.thinking
        self._marked = context.marked
        # Texts that make a message a call, and the tool of each; None: any recipient does.
        self._openings = (
            None
            if context.openings is None
            else {opening.mark: opening.lead[:-1] for opening in context.openings}
        )

    def read(self, reader: ReplyReader) -> Incremental[None]:
        if self._thinking:
            opened = yield from self._body(reader, Header(f"{CHANNEL}analysis"), "")
        else:
            opened = yield from self._start(reader)
        while not reader.buffer.exhausted or opened:
            if opened:
                opened = yield from self._message(reader, opened)
            elif self._marked:
                yield from reader.buffer.read_rest(reader.emit_content)
            else:
                matcher = mark_matcher(START, CHANNEL)
                opened, newlines = yield from reader.buffer.read_until(matcher, reader.emit_content)
                reader.emit_content(newlines)

    def _start(self, reader: ReplyReader) -> Incremental[str]:
        opened = yield from reader.buffer.try_read(RECIPIENT_FIRST)
        space: list[str] = []
        if not opened:
            yield from reader.buffer.read_run(SPACE, space.append)
            opened = yield from reader.buffer.try_read(START, CHANNEL)
        reader.emit_content("" if opened and self._split else "".join(space))
        return opened

    def _message(self, reader: ReplyReader, opened: str) -> Incremental[str]:
        """Returns the mark of the next message if one follows at once, else ""."""
        buffer = reader.buffer
        buffer.checkpoint()
        try:
            rest, _ = yield from buffer.read_up_to(MAX_HEADER, MESSAGE)
        except NotACall:
            is_cut = buffer.hit_end and buffer.is_cut
            buffer.rollback()
            if is_cut:
                yield from buffer.read_rest(discard)
            else:
                reader.emit_content(opened)
            return ""
        header = Header(opened + rest)
        name = self._called(header, reader)
        if name:
            return (yield from self._call(reader, name, opened))
        buffer.commit()
        return (yield from self._body(reader, header, header.written + MESSAGE))

    def _called(self, header: Header, reader: ReplyReader) -> str:
        """The tool that the message calls, or ""."""
        if self._openings is None:
            return header.recipient if header.recipient in reader.tools else ""
        written = header.written + MESSAGE
        found = [(written.find(mark), name) for mark, name in self._openings.items()]
        return min([pair for pair in found if pair[0] >= 0], default=(0, ""))[1]

    def _body(self, reader: ReplyReader, header: Header, written: str) -> Incremental[str]:
        """Reads a message that is not a call, of which `written` has been read."""
        raw = not self._split or bool(header.recipient)
        sink = reader.emit_thought if header.is_thought and not raw else reader.emit_content
        sink(written if raw else "")
        found, newlines = yield from reader.buffer.read_until(BOUNDS, sink)
        sink(newlines)
        if found in (START, CHANNEL):
            return found
        sink(found if raw else "")
        return (yield from self._next(reader, sink if raw else discard))

    def _next(self, reader: ReplyReader, sink: Sink) -> Incremental[str]:
        """The mark of a message that follows after whitespace only, else ""."""
        yield from reader.buffer.read_run(SPACE, sink)
        return (yield from reader.buffer.try_read(START, CHANNEL))

    def _call(self, reader: ReplyReader, name: str, opened: str) -> Incremental[str]:
        buffer, calls = reader.buffer, reader.n_calls
        try:
            yield from read_named_call(reader, name)
            yield from buffer.expect_close(CALL, END, RETURN)
        except NotACall:
            reader.emit_content(opened if reader.n_calls == calls else "")
            if not buffer.rollback() and buffer.hit_end:
                yield from buffer.read_rest(discard)  # the text ended within the call
            return ""
        buffer.commit()
        return (yield from self._next(reader, discard))

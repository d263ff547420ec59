"""The layout of calls whose parameters are between marks one by one, as text instead of JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deployments.text.dialects.call_grammar import (
    CallBody,
    call_rules,
    call_sequence,
    json_call_body,
    literal,
)
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import CallReader
from deployments.text.dialects.parameter_grammar import (
    Parameter,
    can_be_text,
    parameters_of,
    text_value,
)
from deployments.text.dialects.parsing.incremental import Incremental, NotACall, mark_matcher
from deployments.text.dialects.parsing.json_calls import read_json_calls
from deployments.text.dialects.parsing.literals import inside_string, to_json
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.dialects.parsing.values import STRING, Types, parameter_types, value_json
from deployments.text.tool import Tool

MAX_KEY = 256


@dataclass(frozen=True, slots=True)
class CallTags:
    """The marks around the parts of one call.

    Without `name_end` a name ends at the first key or at the end of the call. With `wrapped` values
    are on lines of their own, and the newlines around them are not part of them.

    newline: Lark of what is between the parts of a call.
    """

    start: str
    name_end: str
    key: tuple[str, str]
    value: tuple[str, str]
    end: str
    wrapped: bool = False
    newline: str = r'"\n"'

    def read(self, reader: ReplyReader) -> Incremental[None]:
        """Reads one call from behind the mark of its start."""
        ends = (self.name_end,) if self.name_end else (self.key[0], self.end)
        name, found = yield from reader.read_name_until(*ends)
        reader.begin_call(name)
        if found == self.name_end:
            found = yield from self._next(reader)
        first = True
        while found == self.key[0]:
            key = yield from self._key(reader)
            reader.emit_arguments(("{" if first else ", ") + to_json(key) + ": ")
            yield from self._value(reader, parameter_types(reader.tools[name].parameters, key))
            first = False
            found = yield from self._next(reader)
        reader.emit_arguments("{}" if first else "}")
        reader.end_call()

    def _next(self, reader: ReplyReader) -> Incremental[str]:
        yield from reader.buffer.skip_space()
        return (yield from reader.buffer.expect(self.key[0], self.end))

    def _key(self, reader: ReplyReader) -> Incremental[str]:
        key, _ = yield from reader.buffer.read_up_to(MAX_KEY, self.key[1])
        if self.value[0]:
            yield from reader.buffer.skip_space()
            yield from reader.buffer.expect(self.value[0])
        return key.strip()

    def _value(self, reader: ReplyReader, types: Types) -> Incremental[None]:
        if self.wrapped and (yield from reader.buffer.peek()) == "\n":
            yield from reader.buffer.read_character()
        if types == STRING:
            reader.emit_arguments('"')
            yield from self._text(reader, lambda text: reader.emit_arguments(inside_string(text)))
            reader.emit_arguments('"')
            return
        parts: list[str] = []
        try:
            yield from self._text(reader, parts.append)
        except NotACall:
            reader.emit_arguments("".join(parts))
            raise
        reader.emit_arguments(value_json("".join(parts), types))

    def _text(self, reader: ReplyReader, sink: Callable[[str], None]) -> Incremental[None]:
        found, newlines = yield from reader.buffer.read_until(
            mark_matcher(self.value[1]), sink, cut=True
        )
        sink(newlines[1:] if self.wrapped else newlines)
        if not found:
            raise NotACall

    def can_write(self, tools: Sequence[Tool]) -> bool:
        return all(
            parameters is not None and all(can_be_text(each, self.value[1]) for each in parameters)
            for parameters in map(parameters_of, tools)
        )

    def body(self, mark: WriteMark) -> CallBody:
        """Grammar of a call of a tool that `can_write` accepts, from behind its start mark."""

        def write(tool: Tool, rule: str) -> str:
            parameters = parameters_of(tool) or ()
            parts = [f"{rule}_{index}" for index in range(len(parameters))]
            lines = [
                line
                for each in zip(parts, parameters, strict=True)
                for line in self._parameter(*each, mark)
            ]
            given = [
                part if each.required else f"{part}?"
                for part, each in zip(parts, parameters, strict=True)
            ]
            ended = mark(self.name_end) if self.name_end else ""
            head = f"{literal(tool.name)} {ended}"
            body = f"{head} {self.newline} {' '.join(given)} {mark(self.end)}"
            return "\n".join([body, *lines])

        return write

    def _parameter(self, rule: str, parameter: Parameter, mark: WriteMark) -> list[str]:
        value, lines = text_value(rule, parameter, self.value[1], self.wrapped, mark)
        key = f"{mark(self.key[0])} {literal(parameter.name)} {mark(self.key[1])}"
        start = f"{self.newline} {mark(self.value[0])}" if self.value[0] else ""
        wrap = r'"\n"' if self.wrapped else ""
        return [f"{rule}: {key} {start} {wrap} {value} {self.newline}", *lines]


def read_tagged_calls(opening: str, tags: CallTags, closing: str) -> CallReader:
    """Reads calls between two marks, in tags or as JSON. If `opening` starts a call, one only."""

    def read(reader: ReplyReader) -> Incremental[None]:
        yield from reader.buffer.skip_space()
        if (yield from reader.buffer.peek()) in ("{", "["):
            yield from read_json_calls(reader)
        elif tags.start == opening:
            return (yield from tags.read(reader))
        else:
            yield from reader.buffer.expect(tags.start)
            yield from tags.read(reader)
            while (yield from _another(reader, tags.start)):
                yield from tags.read(reader)
        yield from reader.buffer.expect_close(closing)

    return read


def _another(reader: ReplyReader, start: str) -> Incremental[bool]:
    yield from reader.buffer.skip_space()
    return bool((yield from reader.buffer.try_read(start)))


def tagged_calls_lark(
    opening: str,
    tags: CallTags,
    closing: str,
    tools: Sequence[Tool],
    parallel: bool,
    mark: WriteMark,
) -> str:
    """The grammar of `read_tagged_calls`: tags if they can express the schemas, else JSON. Several
    calls may be in one block, or in one each.
    """
    another = rf'"\n" {mark(opening)}'
    if not tags.can_write(tools):
        one = rf'"\n" call "\n" {mark(closing)}'
        return call_rules(call_sequence(one, another, parallel), tools, json_call_body())
    if tags.start == opening:
        listed = call_sequence("call", f"{tags.newline} {mark(opening)}", parallel)
    else:
        one = rf'"\n" {mark(tags.start)} call'
        between = rf'("\n" {mark(closing)} {another})?'
        listed = rf'{call_sequence(one, between, parallel)} "\n" {mark(closing)}'
    return call_rules(listed, tools, tags.body(mark))

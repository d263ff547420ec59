"""Calls whose parameters stand between marks one by one, each as text and not as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deployments.text.dialects.call_grammar import (
    Body,
    calls_lark,
    json_call,
    literal,
    several,
)
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import Form
from deployments.text.dialects.parameter_grammar import (
    Parameter,
    can_be_text,
    parameters_of,
    text_value,
)
from deployments.text.dialects.parsing.incremental import NoCall, Steps, marks
from deployments.text.dialects.parsing.json_calls import json_calls
from deployments.text.dialects.parsing.literals import inside_string, to_json
from deployments.text.dialects.parsing.reading import Reading
from deployments.text.dialects.parsing.values import STRING, Types, parameter_types, value_json
from deployments.text.tool import Tool

MAX_KEY = 256


@dataclass(frozen=True, slots=True)
class Markup:
    """What stands around the parts of one call.

    With no `name_end` a name ends at the first key or at the call's end. With `wrapped`, values
    stand on lines of their own, whose breaks are not theirs.
    """

    start: str
    name_end: str
    key: tuple[str, str]
    value: tuple[str, str]
    end: str
    wrapped: bool = False

    def read(self, reading: Reading) -> Steps[None]:
        """One call, behind the mark of its start."""
        ends = (self.name_end,) if self.name_end else (self.key[0], self.end)
        name, found = yield from reading.name_until(*ends)
        reading.begin_call(name)
        if found == self.name_end:
            found = yield from self._next(reading)
        first = True
        while found == self.key[0]:
            key = yield from self._key(reading)
            reading.arguments(("{" if first else ", ") + to_json(key) + ": ")
            yield from self._value(reading, parameter_types(reading.tools[name].parameters, key))
            first = False
            found = yield from self._next(reading)
        reading.arguments("{}" if first else "}")
        reading.end_call()

    def _next(self, reading: Reading) -> Steps[str]:
        yield from reading.source.space()
        return (yield from reading.source.expect(self.key[0], self.end))

    def _key(self, reading: Reading) -> Steps[str]:
        key, _ = yield from reading.source.upto(MAX_KEY, self.key[1])
        if self.value[0]:
            yield from reading.source.space()
            yield from reading.source.expect(self.value[0])
        return key.strip()

    def _value(self, reading: Reading, types: Types) -> Steps[None]:
        if self.wrapped and (yield from reading.source.peek()) == "\n":
            yield from reading.source.read()
        if types == STRING:
            reading.arguments('"')
            yield from self._text(reading, lambda text: reading.arguments(inside_string(text)))
            reading.arguments('"')
            return
        parts: list[str] = []
        try:
            yield from self._text(reading, parts.append)
        except NoCall:
            reading.arguments("".join(parts))
            raise
        reading.arguments(value_json("".join(parts), types))

    def _text(self, reading: Reading, sink: Callable[[str], None]) -> Steps[None]:
        found, newlines = yield from reading.source.until(marks(self.value[1]), sink, cut=True)
        sink(newlines[1:] if self.wrapped else newlines)
        if not found:
            raise NoCall

    def can_write(self, tools: Sequence[Tool]) -> bool:
        return all(
            parameters is not None and all(can_be_text(each, self.value[1]) for each in parameters)
            for parameters in map(parameters_of, tools)
        )

    def body(self, mark: Mark, *, opened: bool) -> Body:
        """Grammar of one call, perhaps behind its start, of a tool that can be written."""

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
            start = "" if opened else mark(self.start)
            ended = mark(self.name_end) if self.name_end else ""
            head = f"{start} {literal(tool.name)} {ended}"
            return "\n".join([rf'{head} "\n" {" ".join(given)} {mark(self.end)}', *lines])

        return write

    def _parameter(self, rule: str, parameter: Parameter, mark: Mark) -> list[str]:
        value, lines = text_value(rule, parameter, self.value[1], self.wrapped, mark)
        key = f"{mark(self.key[0])} {literal(parameter.name)} {mark(self.key[1])}"
        start = rf'"\n" {mark(self.value[0])}' if self.value[0] else ""
        wrap = r'"\n"' if self.wrapped else ""
        return [rf'{rule}: {key} {start} {wrap} {value} "\n"', *lines]


def marked_calls(opening: str, markup: Markup, closing: str) -> Form:
    """Calls between two marks, in markup or as JSON; with no start of its own, one call."""

    def read(reading: Reading) -> Steps[None]:
        yield from reading.source.space()
        if (yield from reading.source.peek()) in ("{", "["):
            yield from json_calls(reading)
        elif markup.start == opening:
            return (yield from markup.read(reading))
        else:
            yield from reading.source.expect(markup.start)
            yield from markup.read(reading)
            while (yield from _another(reading, markup.start)):
                yield from markup.read(reading)
        yield from reading.source.close(closing)

    return read


def _another(reading: Reading, start: str) -> Steps[bool]:
    yield from reading.source.space()
    return bool((yield from reading.source.one_of(start)))


def marked_lark(
    opening: str, markup: Markup, closing: str, tools: Sequence[Tool], parallel: bool, mark: Mark
) -> str:
    """The grammar of what `marked_calls` reads: markup where it can carry the schemas."""
    written = markup.can_write(tools)
    opens = written and markup.start == opening
    one = "call" if opens else rf'"\n" call "\n" {mark(closing)}'
    listed = several(one, rf'"\n" {mark(opening)}', parallel)
    return calls_lark(listed, tools, markup.body(mark, opened=opens) if written else json_call())

"""Reads calls that are JSON objects with the name of a tool and its arguments.

The arguments are emitted as they come, once the name is known. A call begins with its arguments, so
malformed text before them is content. An object that begins with other keys is not a call.
"""

import json
from collections.abc import Callable

from deployments.text.dialects.parsing.incremental import Incremental, NotACall, TextBuffer, discard
from deployments.text.dialects.parsing.literals import LiteralReader, read_string, to_json
from deployments.text.dialects.parsing.reading import ReplyReader

NAMES = {"name", "tool_name"}
ARGUMENTS = {"arguments", "parameters", "args"}
OTHERS = {"type", "id", "tool_call_id", "call_id", "index"}  # may stand before a name
MAX_KEY = 64
MAX_ESCAPED = 6  # characters that one character of a name may take, as in \\u0041
MAX_QUOTED_ARGUMENTS = 1 << 20


def read_json_calls(reader: ReplyReader) -> Incremental[None]:
    """One call, or a list of them."""
    buffer = reader.buffer
    yield from buffer.skip_space()
    if not (yield from buffer.try_read("[")):
        yield from JsonCallReader(reader).read()
        return
    while True:
        yield from buffer.skip_space()
        yield from JsonCallReader(reader).read()
        yield from buffer.skip_space()
        if (yield from buffer.expect(",", "]")) == "]":
            return


def read_json_calls_through(closing: str) -> Callable[[ReplyReader], Incremental[None]]:
    """Reads calls between two marks, from behind the opening one through `closing`.

    Calls that are not in a list may follow each other, one a line.
    """

    def read(reader: ReplyReader) -> Incremental[None]:
        yield from read_json_calls(reader)
        yield from reader.buffer.skip_space()
        while (yield from reader.buffer.peek()) == "{":
            yield from JsonCallReader(reader).read()
            yield from reader.buffer.skip_space()
        yield from reader.buffer.expect_close(closing)

    return read


def read_separated_calls(reader: ReplyReader) -> Incremental[None]:
    """Calls with semicolons between them."""
    while True:
        yield from read_json_calls(reader)
        yield from reader.buffer.skip_space()
        if not (yield from reader.buffer.try_read(";")):
            return


def read_named_call(
    reader: ReplyReader, name: str, call_id: str | None = None
) -> Incremental[None]:
    """Reads the arguments of a call whose name has been read: an object."""
    yield from reader.buffer.skip_space()
    if (yield from reader.buffer.peek()) not in ("{", ""):
        raise NotACall
    reader.begin_call(name, call_id)
    yield from LiteralReader(reader.buffer, reader.emit_arguments).read()
    reader.end_call()


class JsonCallReader:
    def __init__(self, reader: ReplyReader) -> None:
        self._reader = reader
        self._buffer: TextBuffer = reader.buffer
        self._name = ""
        self._begun = False
        self._held_back: list[str] = []  # arguments before the name

    def read(self) -> Incremental[None]:
        try:
            yield from self._members()
        except NotACall:
            if self._buffer.hit_end and self._name and not self._begun:
                self._begin()
            raise
        self._finish()

    def _members(self) -> Incremental[None]:
        yield from self._buffer.expect("{")
        ended = ""
        while ended != "}":
            yield from self._buffer.skip_space()
            key = yield from read_string(self._buffer, MAX_KEY)
            yield from self._buffer.skip_space()
            yield from self._buffer.expect(":")
            yield from self._buffer.skip_space()
            yield from self._member(key)
            yield from self._buffer.skip_space()
            ended = yield from self._buffer.expect(",", "}")

    def _member(self, key: str) -> Incremental[None]:
        if key in NAMES and not self._name:
            yield from self._read_name()
        elif key in ARGUMENTS and not self._begun and not self._held_back:
            yield from self._read_arguments()
        elif key in OTHERS or self._name:
            yield from LiteralReader(self._buffer, discard).read()
        else:
            raise NotACall

    def _read_name(self) -> Incremental[None]:
        longest = max(map(len, self._reader.tools))
        name = yield from read_string(self._buffer, MAX_ESCAPED * longest)
        if name not in self._reader.tools:
            raise NotACall
        self._name = name

    def _read_arguments(self) -> Incremental[None]:
        match (yield from self._buffer.peek()):
            case "{":
                if self._name:
                    self._begin()
                yield from LiteralReader(self._buffer, self._emit_or_hold_back).read()
            case '"':
                quoted = yield from read_string(self._buffer, MAX_QUOTED_ARGUMENTS)
                self._emit_or_hold_back(_object(quoted))
            case _:
                yield from self._buffer.expect("null")

    def _emit_or_hold_back(self, text: str) -> None:
        if self._begun:
            self._reader.emit_arguments(text)
        else:
            self._held_back.append(text)

    def _begin(self) -> None:
        self._begun = True
        self._reader.begin_call(self._name)
        for text in self._held_back:
            self._reader.emit_arguments(text)

    def _finish(self) -> None:
        if not self._name:
            raise NotACall
        if not self._begun:
            self._held_back = self._held_back or ["{}"]
            self._begin()
        self._reader.end_call()


def _object(text: str) -> str:
    """The JSON of an object that is written as a string."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return to_json(value)
    except (ValueError, RecursionError):
        pass
    raise NotACall

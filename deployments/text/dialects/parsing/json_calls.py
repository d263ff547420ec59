"""Calls written as JSON objects that name a tool and hold its arguments.

The arguments are given out as they come once the name is known; a call begins when its arguments
do, so that what is malformed before is content. An object that begins with other keys is none.
"""

import json
from collections.abc import Callable

from deployments.text.dialects.parsing.incremental import NoCall, Source, Steps, ignore
from deployments.text.dialects.parsing.literals import Literals, read_string, to_json
from deployments.text.dialects.parsing.reading import Reading

NAMES = {"name", "tool_name"}
ARGUMENTS = {"arguments", "parameters", "args"}
OTHERS = {"type", "id", "tool_call_id", "call_id", "index"}  # may stand before a name
MAX_KEY = 64
MAX_ESCAPED = 6  # characters that one character of a name may take, as in \\u0041
MAX_QUOTED_ARGUMENTS = 1 << 20


def json_calls(reading: Reading) -> Steps[None]:
    """One call, or a list of them."""
    source = reading.source
    yield from source.space()
    if not (yield from source.one_of("[")):
        yield from JsonCall(reading).read()
        return
    while True:
        yield from source.space()
        yield from JsonCall(reading).read()
        yield from source.space()
        if (yield from source.expect(",", "]")) == "]":
            return


def closed_by(closing: str) -> Callable[[Reading], Steps[None]]:
    """What is read behind the mark that opens such calls, through the one that closes them.

    Calls without a list around them may follow each other, one a line.
    """

    def read(reading: Reading) -> Steps[None]:
        yield from json_calls(reading)
        yield from reading.source.space()
        while (yield from reading.source.peek()) == "{":
            yield from JsonCall(reading).read()
            yield from reading.source.space()
        yield from reading.source.close(closing)

    return read


def separated_calls(reading: Reading) -> Steps[None]:
    """Calls with semicolons between them."""
    while True:
        yield from json_calls(reading)
        yield from reading.source.space()
        if not (yield from reading.source.one_of(";")):
            return


def named_call(reading: Reading, name: str, call_id: str | None = None) -> Steps[None]:
    """A call whose name has been read: an object of arguments follows."""
    yield from reading.source.space()
    if (yield from reading.source.peek()) not in ("{", ""):
        raise NoCall
    reading.begin_call(name, call_id)
    yield from Literals(reading.source, reading.arguments).value()
    reading.end_call()


class JsonCall:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._source: Source = reading.source
        self._name = ""
        self._begun = False
        self._held: list[str] = []  # arguments that came before the name

    def read(self) -> Steps[None]:
        try:
            yield from self._members()
        except NoCall:
            if self._source.short and self._name and not self._begun:
                self._begin()
            raise
        self._finish()

    def _members(self) -> Steps[None]:
        yield from self._source.expect("{")
        ended = ""
        while ended != "}":
            yield from self._source.space()
            key = yield from read_string(self._source, MAX_KEY)
            yield from self._source.space()
            yield from self._source.expect(":")
            yield from self._source.space()
            yield from self._member(key)
            yield from self._source.space()
            ended = yield from self._source.expect(",", "}")

    def _member(self, key: str) -> Steps[None]:
        if key in NAMES and not self._name:
            yield from self._read_name()
        elif key in ARGUMENTS and not self._begun and not self._held:
            yield from self._read_arguments()
        elif key in OTHERS or self._name:
            yield from Literals(self._source, ignore).value()
        else:
            raise NoCall

    def _read_name(self) -> Steps[None]:
        longest = max(map(len, self._reading.tools))
        name = yield from read_string(self._source, MAX_ESCAPED * longest)
        if name not in self._reading.tools:
            raise NoCall
        self._name = name

    def _read_arguments(self) -> Steps[None]:
        match (yield from self._source.peek()):
            case "{":
                if self._name:
                    self._begin()
                yield from Literals(self._source, self._give).value()
            case '"':
                quoted = yield from read_string(self._source, MAX_QUOTED_ARGUMENTS)
                self._give(_object(quoted))
            case _:
                yield from self._source.expect("null")

    def _give(self, text: str) -> None:
        if self._begun:
            self._reading.arguments(text)
        else:
            self._held.append(text)

    def _begin(self) -> None:
        self._begun = True
        self._reading.begin_call(self._name)
        for text in self._held:
            self._reading.arguments(text)

    def _finish(self) -> None:
        if not self._name:
            raise NoCall
        if not self._begun:
            self._held = self._held or ["{}"]
            self._begin()
        self._reading.end_call()


def _object(text: str) -> str:
    """An object that was itself written as a string."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return to_json(value)
    except (ValueError, RecursionError):
        pass
    raise NoCall

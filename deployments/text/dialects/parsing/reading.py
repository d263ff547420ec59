"""Holds the state of parsing one reply: the text to read and the pieces to emit."""

import re
from collections.abc import Callable, Mapping
from itertools import count

from deployments.text.dialects.parsing.incremental import (
    Incremental,
    NotACall,
    TextBuffer,
    mark_matcher,
)
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    ReplyParser,
    Thought,
)
from deployments.text.tool import Tool

NAME = re.compile(r"[^\s\"'(){}\[\]<>=,;]+")
MAX_SPACE_AFTER_NAME = 8  # characters
CallIds = Callable[[int, str], str]


class ReplyReader:
    """Keeps the text of a possible call until its name is known: it may turn out to be content."""

    def __init__(self, tools: Mapping[str, Tool], call_id: CallIds) -> None:
        self.buffer = TextBuffer()
        self.tools = tools
        self.n_calls = 0
        self._call_id = call_id
        self._ids: set[str] = set()
        self._kind: type[ContentPiece | Thought | CallArguments] = ContentPiece
        self._texts: list[str] = []
        self._pieces: list[Piece] = []

    def emit_content(self, text: str) -> None:
        self._add(ContentPiece, text)

    def emit_thought(self, text: str) -> None:
        self._add(Thought, text)

    def emit_arguments(self, text: str) -> None:
        """The next characters of the last call."""
        self._add(CallArguments, text)

    def begin_call(self, name: str, call_id: str | None = None) -> None:
        """Begins a call: from here on the text is one, whatever follows."""
        assert name in self.tools
        self._flush()
        self.buffer.commit()
        identifier = self._new_id(name) if call_id is None or call_id in self._ids else call_id
        self._ids.add(identifier)
        self._pieces.append(CallStart(self.n_calls, identifier, name))
        self.n_calls += 1

    def _new_id(self, name: str) -> str:
        """An id that is new in the reply. Models that number their calls may count wrong."""
        made = (self._call_id(index, name) for index in count(self.n_calls))
        return next(identifier for identifier in made if identifier not in self._ids)

    def end_call(self) -> None:
        """Text after the call that is not of the dialect becomes content."""
        self.buffer.checkpoint()

    def read_name_until(self, *ends: str) -> Incremental[tuple[str, str]]:
        """The name of a tool without the whitespace around it, and the mark after it."""
        read, longest = "", max(map(len, self.tools)) + MAX_SPACE_AFTER_NAME

        def sink(text: str) -> None:
            nonlocal read
            read = (read + text).lstrip()
            begun = any(name.startswith(read.rstrip()) for name in self.tools)
            if not begun or len(read) > longest:
                raise NotACall

        end, _ = yield from self.buffer.read_until(mark_matcher(*ends), sink)
        if not end or read.rstrip() not in self.tools:
            raise NotACall
        return read.rstrip(), end

    def read_name(self) -> Incremental[str]:
        """The name of a tool, followed by a character that is not part of a name."""
        longest = max(map(len, self.tools))
        name = yield from self.buffer.look_ahead(NAME, longest + 1)
        if name not in self.tools:
            raise NotACall
        return self.buffer.take(name)

    def take_pieces(self) -> list[Piece]:
        self._flush()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _add(self, kind: type[ContentPiece | Thought | CallArguments], text: str) -> None:
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        if text:
            self._texts.append(text)

    def _flush(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if text and self._kind is CallArguments:
            self._pieces.append(CallArguments(self.n_calls - 1, text))
        elif text:
            self._pieces.append(Thought(text) if self._kind is Thought else ContentPiece(text))


ReadScript = Callable[[ReplyReader], Incremental[None]]


class IncrementalParser(ReplyParser):
    """Runs a script over a reply, further with each piece of text."""

    def __init__(self, reader: ReplyReader, script: ReadScript) -> None:
        self._reader = reader
        self._steps = script(reader)

    def push(self, text: str) -> list[Piece]:
        self._reader.buffer.feed(text)
        next(self._steps, None)
        return self._reader.take_pieces()

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        self._reader.buffer.ended, self._reader.buffer.is_cut = True, is_cut
        next(self._steps, None)
        return self._reader.take_pieces()


class PlainParser(ReplyParser):
    """A parser of replies that are all content."""

    def push(self, text: str) -> list[Piece]:
        return [ContentPiece(text)] if text else []

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        return []

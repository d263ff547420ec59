"""How replies of most families are laid out: thoughts and calls as blocks between marks, and text.

Thoughts stand where a block may begin: at the start of a reply, or behind a thought or a call.
Calls begin at their mark anywhere outside of thoughts. Whitespace behind a thought or a call, and
newlines right before one, belong to the format and not to the content. An end mark without a
thought is content.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from deployments.text.dialects.call_grammar import not_first, through, without
from deployments.text.dialects.dialect import Dialect, Listening, Mark
from deployments.text.dialects.parsing.incremental import SPACE, NoCall, Steps, ignore, marks
from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.dialects.parsing.reading import PlainParser, Reading, ScriptedParser
from deployments.text.tool import Tool

Form = Callable[[Reading], Steps[None]]
THINK = ("<think>", "</think>")
NEWLINES = re.compile(r"\n+")


class Family(Dialect):
    """A dialect that is a description.

    `signs`: any of them in a chat template tells the family. `openings`: what is read behind a
    mark that opens calls. `bare`: what is read where a block may begin with this character.
    `thoughts`: marks of thoughts beside `thought_marks`. `breaks`: openings that end a thought.
    `opening`: what the grammar has before the first call. `frame`: marks that a model may put
    around its answer and that are no part of it; as special tokens they make no text.
    """

    signs: ClassVar[tuple[str, ...]] = ()
    openings: ClassVar[tuple[tuple[str, Form], ...]] = ()
    bare: ClassVar[tuple[tuple[str, Form], ...]] = ()
    thoughts: tuple[tuple[str, str], ...] = ()
    opening: ClassVar[str]
    frame: tuple[str, str] | None = None

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return any(sign in template for sign in cls.signs)

    def parser(self, listening: Listening) -> ReplyParser:
        if not listening.tools and not (listening.split_thoughts and self.thought_ends()):
            return PlainParser()
        reading = Reading({tool.name: tool for tool in listening.tools}, self.call_id)
        return ScriptedParser(reading, Layout(self, listening).read)

    def calls(self, tools: Sequence[Tool], parallel: bool, mark: Mark, marked: bool = False) -> str:
        head = mark(self.opened_by(mark)) if marked or not self.unmarked else ""
        return f"calls: {head} listed\n{self.listed(tools, parallel, mark)}"

    @abstractmethod
    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        """Lark whose rule `listed` is the calls behind what opens them."""

    def reply(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        frame = self.frame or ("", "")
        start, end = (f"{mark(one)}?" if mark(one)[0] == "<" else "" for one in frame)
        first = not_first(*self.thought_ends(), *dict(self.bare))
        lines = [
            f"reply: text | lead listed{' | listed' if self.unmarked else ''}",
            f"text: {start} TEXT {end}",
            through("lead", "TEXT", mark(self.opened_by(mark))),
            f"TEXT: {without(*self.call_openings())}{first}",
            self.listed(tools, parallel, mark),
        ]
        return "\n".join(lines)

    def opened_by(self, mark: Mark) -> str:
        """The mark before the first call, by what special tokens there are."""
        return self.opening

    def call_openings(self) -> tuple[str, ...]:
        """What no text has that is no call."""
        return tuple(opening for opening, _ in self.openings)

    def thought_ends(self) -> dict[str, str]:
        """The end mark of each start mark."""
        first = () if self.thought_marks is None else (self.thought_marks,)
        return dict([*first, *self.thoughts])


class Layout:
    """The script of one reply."""

    def __init__(self, family: Family, listening: Listening) -> None:
        self._ends = family.thought_ends()
        self._openings = dict(family.openings if listening.tools else ())
        self._bare = dict(family.bare if listening.tools and not listening.marked else ())
        # What opens calls within text.
        self._inner: tuple[str, ...] = () if listening.marked else tuple(self._openings)
        self._breaks = family.breaks if listening.tools else ()
        self._split = listening.split_thoughts
        self._frames = dict([family.frame] if family.frame and self._split else [])
        self._frame_end: tuple[str, ...] = ()  # of the frame that is open
        self._opened = family.thought_marks if listening.thinking else None
        self._spaced = True  # whitespace at the next block is content unless a block follows

    def read(self, reading: Reading) -> Steps[None]:
        fresh = True  # a block may begin here
        if self._opened is not None:
            yield from self._opened_thought(reading, *self._opened)
        while True:
            if fresh:
                fresh = yield from self._block(reading)
                continue
            looked_for = (*self._inner, *self._frame_end)
            if not looked_for:
                return (yield from reading.source.rest(reading.content))
            mark, newlines = yield from reading.source.until(marks(*looked_for), reading.content)
            if not mark:
                return reading.content(newlines)
            if mark in self._frame_end:
                self._frame_end = ()
            else:
                fresh = yield from self._call(reading, newlines + mark, self._openings[mark])

    def _block(self, reading: Reading) -> Steps[bool]:
        """Whether another may follow."""
        source, space = reading.source, list[str]()
        yield from source.run(SPACE, space.append)
        lead = "".join(space) if self._spaced else ""
        mark = yield from source.one_of(
            *self._ends, *self._openings, *self._frames, *self._frame_end
        )
        if mark in self._frames:
            return self._frame(mark)
        if mark in self._frame_end:
            self._frame_end = ()
            return False
        if mark in self._ends:
            return (yield from self._thought(reading, lead + mark, self._ends[mark]))
        if mark:
            return (yield from self._call(reading, lead + mark, self._openings[mark]))
        form = self._bare.get((yield from source.peek()))
        if form is not None:
            return (yield from self._call(reading, lead, form))
        reading.content(lead)
        return False

    def _frame(self, start: str) -> bool:
        """Within it are text and calls behind their marks, and behind it no more than that."""
        self._frame_end = (self._frames.pop(start),)
        self._ends, self._bare, self._spaced = {}, {}, False
        return True

    def _opened_thought(self, reading: Reading, start: str, end: str) -> Steps[None]:
        """A thought that the prompt has opened; the model may open it once more."""
        if self._split:
            yield from reading.source.run(NEWLINES)
            yield from reading.source.one_of(start)
        yield from self._thought(reading, "", end)

    def _thought(self, reading: Reading, lead: str, end: str) -> Steps[bool]:
        self._spaced = not self._split
        sink = reading.thought if self._split else reading.content
        if self._split:
            yield from reading.source.run(NEWLINES)
        else:
            reading.content(lead)
        mark, newlines = yield from reading.source.until(marks(end, *self._breaks), sink)
        if mark in self._breaks:
            return (yield from self._call(reading, newlines + mark, self._openings[mark]))
        if not mark or not self._split:
            sink(newlines + mark)
        return True

    def _call(self, reading: Reading, lead: str, form: Form) -> Steps[bool]:
        """Whether a block may follow; what is no call is content, `lead` before all."""
        calls = reading.calls
        reading.source.keep()
        try:
            yield from form(reading)
        except NoCall:
            stands = reading.source.back()
        else:
            stands = reading.calls > calls
            if not stands:
                reading.source.back()
            reading.source.drop()
        if reading.calls == calls:
            reading.content(lead)
            return False
        if not stands and reading.source.short:
            yield from reading.source.rest(ignore)  # the text ended within the call
        self._spaced = self._spaced and not stands
        return stands

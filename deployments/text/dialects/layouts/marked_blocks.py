"""The layout of most families: thoughts and calls are blocks between marks, and the rest is text.

A thought may begin at the start of a reply, or after a thought or a call. A call begins at its
mark, anywhere outside thoughts. Whitespace after a thought or a call, and newlines right before
one, are part of the format and not of the content. The end mark of a thought is content if no
thought is open.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from deployments.contract.grammar_triggers import TriggerMode
from deployments.text.dialects.dialect import Dialect, Opening, ReplyContext, WriteMark
from deployments.text.dialects.parsing.incremental import (
    SPACE,
    Incremental,
    NotACall,
    TextBuffer,
    discard,
    mark_matcher,
)
from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.dialects.parsing.reading import IncrementalParser, PlainParser, ReplyReader
from deployments.text.grammar.triggers import MarkSet, compacted
from deployments.text.tool import Tool

CallReader = Callable[[ReplyReader], Incremental[None]]
THINK = ("<think>", "</think>")
NEWLINES = re.compile(r"\n+")


class MarkedBlocks(Dialect):
    """A dialect that is defined by its marks and by the reader for the calls after each mark."""

    # Any of these in a chat template identifies the family.
    template_signs: ClassVar[tuple[str, ...]] = ()
    # Marks that open calls, and the reader of the calls after each.
    openings: ClassVar[tuple[tuple[str, CallReader], ...]] = ()
    # Characters that open calls without a mark, where a block may begin, and the readers of these.
    bare_openings: ClassVar[tuple[tuple[str, CallReader], ...]] = ()
    # Marks of thoughts in addition to `thought_marks`.
    more_thought_marks: tuple[tuple[str, str], ...] = ()
    # What the grammar writes before the first call.
    opening: ClassVar[str]
    # Marks that a model may put around its answer. They are not part of it.
    answer_frame: tuple[str, str] | None = None

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return any(sign in template for sign in cls.template_signs)

    def parser(self, context: ReplyContext) -> ReplyParser:
        if not context.tools and not (context.split_thoughts and self.thought_ends()):
            return PlainParser()
        reader = ReplyReader({tool.name: tool for tool in context.tools}, self.call_id)
        return IncrementalParser(reader, BlockReader(self, context).read)

    def calls_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark, marked: bool = False
    ) -> str:
        head = mark(self.opened_by(mark)) if marked or not self.unmarked_calls else ""
        return f"calls: {head} listed\n{self.listed_lark(tools, parallel, mark)}"

    @abstractmethod
    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        """Lark whose rule `listed` is the calls after the mark that opens them."""

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        """A family with more `openings` than one adds those that its grammar can go on from."""
        return self.listed_lark(tools, parallel, mark), (Opening(self.opening, "listed"),)

    def trigger_modes(self, context: ReplyContext) -> tuple[TriggerMode, ...]:
        openings = list(enumerate(context.openings or ()))
        return _block_modes(
            openings={opening.mark: ~index for index, opening in openings if not opening.compact},
            compact={opening.mark: ~index for index, opening in openings if opening.compact},
            thoughts=self.thought_ends(),
            breaks=self.thought_breaks,
            frame=self.answer_frame if context.split_thoughts else None,
            opened_thought=self.thought_marks[0]
            if context.thinking and self.thought_marks
            else None,
        )

    def framed_answer(self, answer: str, context: ReplyContext, mark: WriteMark) -> str:
        if self.answer_frame is None or not context.split_thoughts:
            return answer
        start, end = map(mark, self.answer_frame)
        return f'({start} "\\n"? {answer} "\\n"? {end} | {answer})'

    def opened_by(self, mark: WriteMark) -> str:
        """The mark before the first call. It may depend on the tokenizer's special tokens."""
        return self.opening

    def thought_ends(self) -> dict[str, str]:
        """The end mark of each start mark."""
        first = () if self.thought_marks is None else (self.thought_marks,)
        return dict([*first, *self.more_thought_marks])


def _opens(mark: str, openings: Sequence[Opening]) -> bool:
    return any(opening.mark.startswith(mark) for opening in openings if not opening.compact)


def _compact_marks(context: ReplyContext) -> MarkSet | None:
    """The compact openings of a reply whose calls have a grammar."""
    if context.openings is None:
        return None
    return _mark_set(tuple(opening.mark for opening in context.openings if opening.compact))


@lru_cache(maxsize=4)
def _mark_set(marks: tuple[str, ...]) -> MarkSet:
    """One for all choices: of hundreds of tools it is large."""
    return MarkSet(marks)


class BlockReader:
    """The script that reads one reply."""

    def __init__(self, family: MarkedBlocks, context: ReplyContext) -> None:
        self._ends = family.thought_ends()
        self._openings = {
            mark: form
            for mark, form in (family.openings if context.tools else ())
            if context.openings is None or _opens(mark, context.openings)
        }
        self._bare = dict(family.bare_openings if context.tools and not context.marked else ())
        self._compact = _compact_marks(context)
        # Marks that open calls within content.
        self._inner: tuple[str, ...] = () if context.marked else tuple(self._openings)
        self._breaks = family.thought_breaks if context.tools else ()
        self._split = context.split_thoughts
        self._frames = dict([family.answer_frame] if family.answer_frame and self._split else [])
        self._frame_end: tuple[str, ...] = ()  # of the frame that is open
        self._opened = family.thought_marks if context.thinking else None
        self._keeps_space = True  # whitespace is content, unless a block follows

    def read(self, reader: ReplyReader) -> Incremental[None]:
        fresh = True  # a block may begin here
        if self._opened is not None:
            yield from self._opened_thought(reader, *self._opened)
        while True:
            if fresh:
                fresh = yield from self._block(reader)
                continue
            matcher = (*self._inner, *self._frame_end)
            if not matcher:
                return (yield from reader.buffer.read_rest(reader.emit_content))
            mark, newlines = yield from reader.buffer.read_until(
                mark_matcher(*matcher), reader.emit_content
            )
            if not mark:
                return reader.emit_content(newlines)
            if mark in self._frame_end:
                self._frame_end = ()
            else:
                fresh = yield from self._call(reader, newlines + mark, self._openings[mark])

    def _block(self, reader: ReplyReader) -> Incremental[bool]:
        """Reads a block. Returns whether another one may follow."""
        buffer, space = reader.buffer, list[str]()
        yield from buffer.read_run(SPACE, space.append)
        lead = "".join(space) if self._keeps_space else ""
        mark = yield from buffer.try_read(
            *self._ends, *self._openings, *self._frames, *self._frame_end
        )
        if mark in self._frames:
            return self._frame(mark)
        if mark in self._frame_end:
            self._frame_end = ()
            return False
        if mark in self._ends:
            return (yield from self._thought(reader, lead + mark, self._ends[mark]))
        if mark:
            return (yield from self._call(reader, lead + mark, self._openings[mark]))
        form = self._bare.get((yield from buffer.peek()))
        if form is not None and (yield from self._begins_call(buffer)):
            return (yield from self._call(reader, lead, form))
        reader.emit_content(lead)
        return False

    def _begins_call(self, buffer: TextBuffer) -> Incremental[bool]:
        """Whether the text is more than a character that calls without a mark begin with."""
        if self._compact is None:
            return True
        buffer.checkpoint()
        begun, may_become = "", True
        while may_become:
            character = yield from buffer.read_character()
            begun = compacted(begun, character)
            may_become = bool(character) and self._compact.may_become(begun)
        is_cut = buffer.is_cut and buffer.hit_end
        buffer.rollback()
        if is_cut and begun not in self._compact.texts:
            yield from buffer.read_rest(discard)
        return begun in self._compact.texts

    def _frame(self, start: str) -> bool:
        """Opens a frame. Thoughts and unmarked calls are not read within it or after it."""
        self._frame_end = (self._frames.pop(start),)
        self._ends, self._bare, self._keeps_space = {}, {}, False
        return True

    def _opened_thought(self, reader: ReplyReader, start: str, end: str) -> Incremental[None]:
        """Reads a thought that the prompt has opened. The model may repeat the opening mark."""
        if self._split:
            yield from reader.buffer.read_run(NEWLINES)
            yield from reader.buffer.try_read(start)
        yield from self._thought(reader, "", end)

    def _thought(self, reader: ReplyReader, lead: str, end: str) -> Incremental[bool]:
        self._keeps_space = not self._split
        sink = reader.emit_thought if self._split else reader.emit_content
        if self._split:
            yield from reader.buffer.read_run(NEWLINES)
        else:
            reader.emit_content(lead)
        mark, newlines = yield from reader.buffer.read_until(mark_matcher(end, *self._breaks), sink)
        if mark in self._breaks:
            return (yield from self._call(reader, newlines + mark, self._openings[mark]))
        if not mark or not self._split:
            sink(newlines + mark)
        return True

    def _call(self, reader: ReplyReader, lead: str, form: CallReader) -> Incremental[bool]:
        """Reads a call. Returns whether a block may follow. Text that is no call is content, like
        the `lead` before it. In a reply that is cut the head of a call is neither.
        """
        calls, is_cut = reader.n_calls, False
        reader.buffer.checkpoint()
        try:
            yield from form(reader)
        except NotACall:
            is_cut = reader.buffer.hit_end and reader.buffer.is_cut
            stands = reader.buffer.rollback()
        else:
            stands = reader.n_calls > calls
            if not stands:
                reader.buffer.rollback()
            reader.buffer.commit()
        if reader.n_calls == calls and is_cut:
            yield from reader.buffer.read_rest(discard)
            return False
        if reader.n_calls == calls:
            reader.emit_content(lead)
            return False
        if not stands and reader.buffer.hit_end:
            yield from reader.buffer.read_rest(discard)  # the text ended within the call
        self._keeps_space = self._keeps_space and not stands
        return stands


def _block_modes(
    *,
    openings: Mapping[str, int],
    compact: Mapping[str, int],
    thoughts: Mapping[str, str],
    breaks: Sequence[str],
    frame: tuple[str, str] | None,
    opened_thought: str | None,
) -> tuple[TriggerMode, ...]:
    """The modes of the search for openings of calls.

    `openings` open calls anywhere outside of thoughts, `compact` ones where a block may begin,
    each with the number of its mode. `thoughts` are the end marks of start marks, `breaks` are
    openings that end thoughts. The prompt has begun the thought with the start mark
    `opened_thought`, if there is one.
    """
    ends = list(dict.fromkeys(thoughts.values()))
    names = ["fresh", "text", *ends, *(["framed", "framed text"] if frame else [])]
    if opened_thought is not None:  # the search starts in the first mode
        names.sort(key=lambda name: name != thoughts[opened_thought])
    number = {name: index for index, name in enumerate(names)}
    start, end = frame or ("", "")
    begun = {mark: number[close] for mark, close in thoughts.items()}
    broken = {mark: opening for mark, opening in openings.items() if mark in breaks}
    entered = {start: number["framed"]} if frame else {}
    inside = {**openings, end: number["text"]}
    modes = {
        "fresh": TriggerMode(
            marks=_pairs({**begun, **openings, **entered}),
            otherwise=number["text"],
            compact=_pairs(compact),
        ),
        "text": TriggerMode(marks=_pairs(openings)),
        **{close: TriggerMode(marks=_pairs({**broken, close: number["fresh"]})) for close in ends},
    }
    if frame:
        modes["framed"] = TriggerMode(marks=_pairs(inside), otherwise=number["framed text"])
        modes["framed text"] = TriggerMode(marks=_pairs(inside))
    return tuple(modes[name] for name in names)


def _pairs(marks: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(marks.items())

"""Finds in an output, token by token, what begins its grammar.

A state is a value: reading a token changes none, and what each has led to is remembered. So a token
of free text costs one look-up, and drafted tokens can be read before they are known to be right.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from deployments.contract.grammar_triggers import GrammarTriggers, TriggerMode

UTF8 = codecs.getincrementaldecoder("utf-8")
SPACE = re.compile(r"\s")
COMPACT = "\0"  # before a begun mark that is compared without whitespace
MAX_REMEMBERED = 1 << 14  # tokens, each in one state; some 200 bytes each


class ScanState(NamedTuple):
    mode: int
    begun: str = ""  # the beginning of a mark
    pending: bytes = b""  # of an incomplete character


class Trigger(NamedTuple):
    number: int
    rest: bytes  # of the token, behind the trigger


class MarkSet:
    """Texts that are recognized from their beginnings."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts)
        self._begun = frozenset(text[:end] for text in self.texts for end in range(len(text)))

    def may_become(self, begun: str) -> bool:
        """Whether a text begins so, and is longer."""
        return begun in self._begun


def compacted(begun: str, character: str) -> str:
    """`begun` and the next character, without whitespace outside of double quotes."""
    is_quoted = begun.count('"') % 2 == 1
    return begun if not is_quoted and SPACE.match(character) else begun + character


class TriggerScanner:
    """`text_bytes` gives the bytes of a token in the text that is searched."""

    start = ScanState(0)

    def __init__(self, triggers: GrammarTriggers, text_bytes: Callable[[int], bytes]) -> None:
        self._modes = [_Mode(mode) for mode in triggers.modes]
        self._text_bytes = text_bytes
        self._remembered: dict[tuple[ScanState, int], ScanState | Trigger] = {}

    def read(self, state: ScanState, token_id: int) -> ScanState | Trigger:
        """The state behind the token, or the trigger in it."""
        found = self._remembered.get((state, token_id))
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            found = self.read_bytes(state, self._text_bytes(token_id))
            self._remembered[state, token_id] = found
        return found

    def read_bytes(self, state: ScanState, raw: bytes) -> ScanState | Trigger:
        decoder = UTF8("replace")
        decoder.setstate((state.pending, 0))
        text = decoder.decode(raw)
        pending = decoder.getstate()[0]
        mode, begun = state.mode, state.begun
        for index, character in enumerate(text):
            mode, begun = self._read_character(mode, begun, character)
            if mode < 0:
                return Trigger(~mode, text[index + 1 :].encode() + pending)
        return ScanState(mode, begun, pending)

    def _read_character(self, number: int, begun: str, character: str) -> tuple[int, str]:
        """The mode and the begun mark behind a character. The mode ~i is trigger i."""
        mode = self._modes[number]
        if mode.otherwise is None:
            return mode.search(number, begun + character)
        found = mode.match(number, begun, character)
        if found is not None:
            return found
        number, text = mode.otherwise, begun.removeprefix(COMPACT) + character
        begun = ""
        for each in text:
            number, begun = self._read_character(number, begun, each)
            if number < 0:  # what follows it was no mark's beginning, so this is the last one
                break
        return number, begun


class _Mode:
    def __init__(self, mode: TriggerMode) -> None:
        self.otherwise = mode.otherwise
        self._skips_space = mode.skips_space
        self._next: Mapping[str, int] = dict(mode.marks)
        self._next_compact: Mapping[str, int] = dict(mode.compact)
        self._marks = MarkSet(self._next)
        self._compact = MarkSet(self._next_compact)

    def search(self, number: int, begun: str) -> tuple[int, str]:
        """The longest end of the text that a mark begins with, where marks may come anywhere."""
        while begun:
            if begun in self._next:
                return self._next[begun], ""
            if self._marks.may_become(begun):
                return number, begun
            begun = begun[1:]
        return number, ""

    def match(self, number: int, begun: str, character: str) -> tuple[int, str] | None:
        """The same, where a mark must come at once. None: none comes."""
        if not begun.startswith(COMPACT):
            text = begun + character
            if text in self._next:
                return self._next[text], ""
            if self._marks.may_become(text):
                return number, text
            if not begun and self._skips_space and SPACE.match(character):
                return number, ""
        text = compacted(begun.removeprefix(COMPACT), character)
        if text in self._next_compact:
            return self._next_compact[text], ""
        return (number, COMPACT + text) if text and self._compact.may_become(text) else None

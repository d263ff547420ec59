"""Which parts of a grammar of characters a greedy lexer may take whole.

llguidance reads the longest terminal that fits and never goes back. That is right as long as no
text ends a terminal in one reading of the grammar and goes on in it in another.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

ASCII = 0x7F
MOST_CLASSES = 256  # beyond these limits nothing is taken whole
MOST_STEPS = 1 << 18

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Characters one after the other."""

    characters: tuple[Ranges, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    part: "Part"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    parts: tuple["Part", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    parts: tuple["Part", ...]


Part = Text | Rule | Repeated | Row | Either
Rules = Mapping[str, Part]
Whole = set[str | Text]  # rules by their names
Path = tuple[Rule, ...]  # from a recursive rule through rules that are not


class Ends(NamedTuple):
    """Where a part begins and ends; a set of places is an integer with their bits."""

    empty: bool
    first: int
    last: int


NOWHERE, EMPTY = Ends(False, 0, 0), Ends(True, 0, 0)


def taken_whole(rules: Rules, start: str) -> Whole:
    """The rules and texts that may be terminals, so that each reads as its characters would."""
    refused: Whole = set()
    try:
        places = Places(rules, start)
        same = places.confusable()
        while True:
            whole = (_regular(rules, refused) | places.texts) - refused
            wrong = places.wrong(same, whole)
            if not wrong:
                return whole
            refused |= wrong
    except (OverflowError, RecursionError):
        return set()


class Places:
    """Each character of a grammar is a place, wherever a rule without recursion is used another
    one. From which place a recursive rule was reached is forgotten, so more readings are taken for
    possible than are. Raises OverflowError where that takes too many steps.
    """

    def __init__(self, rules: Rules, start: str) -> None:
        self.texts: Whole = set()
        self._rules = rules
        self._recursive = rules.keys() - _regular(rules, set())
        self._left = MOST_STEPS
        self._characters: list[Ranges] = []
        self._places: dict[tuple[Path, Text], range] = {}
        self._next: dict[tuple[Path, Text | None], dict[int, int]] = defaultdict(_no_places)
        self._ends_of = dict.fromkeys(self._recursive, NOWHERE)
        self._find_ends()
        self._first = self._ends(Rule(start), ()).first
        self._near = _overlaps(self._characters)

    def _find_ends(self) -> None:
        before: dict[str, Ends] = {}
        while before != self._ends_of:
            before = self._ends_of
            self._ends_of = {name: self._ends(self._rules[name], ()) for name in before}

    def _ends(self, part: Part, path: Path) -> Ends:
        self._spend(1)
        match part:
            case Text():
                return self._ends_of_text(part, path)
            case Rule(name):
                if name in self._recursive:
                    return self._ends_of[name]
                return self._ends(self._rules[name], (*path, part))
            case Repeated(inner, least, most):
                ends = self._ends(inner, path)
                if most is None or most > 1:
                    self._join(ends.last, ends.first, path)
                return EMPTY if most == 0 else ends._replace(empty=ends.empty or least == 0)
            case Row(parts):
                row = EMPTY
                for one in parts:
                    row = self._then(row, self._ends(one, path), path)
                return row
            case Either(parts):
                found = [self._ends(one, path) for one in parts]
                return Ends(
                    any(ends.empty for ends in found),
                    _any(ends.first for ends in found),
                    _any(ends.last for ends in found),
                )

    def _ends_of_text(self, text: Text, path: Path) -> Ends:
        if not text.characters:
            return EMPTY
        places = self._places.get((path, text)) or self._add(text, path)
        return Ends(False, 1 << places[0], 1 << places[-1])

    def _add(self, text: Text, path: Path) -> range:
        self.texts.add(text)
        self._characters += text.characters
        places = range(len(self._characters) - len(text.characters), len(self._characters))
        self._places[path, text] = places
        for one, other in pairwise(places):
            self._join(1 << one, 1 << other, path, text)
        return places

    def _then(self, one: Ends, other: Ends, path: Path) -> Ends:
        self._join(one.last, other.first, path)
        first = one.first | (other.first if one.empty else 0)
        last = other.last | (one.last if other.empty else 0)
        return Ends(one.empty and other.empty, first, last)

    def _join(self, last: int, first: int, path: Path, text: Text | None = None) -> None:
        if first:
            for place in self._steps(last):
                self._next[path, text][place] |= first

    def confusable(self) -> dict[int, int]:
        """Of a place those that a text which came to it may have come to as well; itself too."""
        after: dict[int, int] = defaultdict(int)
        for joined in self._next.values():
            for place, places in joined.items():
                after[place] |= places
        same: dict[int, int] = defaultdict(int)
        waiting = [(self._first, self._first)]
        while waiting:
            ones, others = waiting.pop()
            for one in self._steps(ones):
                fresh = others & self._near[one] & ~same[one]
                same[one] |= fresh
                if fresh and after[one]:
                    waiting.append((after[one], _any(after[each] for each in self._steps(fresh))))
        return same

    def wrong(self, same: Mapping[int, int], whole: Whole) -> Whole:
        """Of what is taken whole: where a text ends it in one reading and goes on in it in another
        with the same character.
        """
        ending: dict[int, int] = defaultdict(int)
        going_on: dict[int, list[tuple[str | Text, int]]] = defaultdict(list)
        for (path, text), joined in self._next.items():
            parts = (*(rule.name for rule in path), text)
            taken = next((part for part in parts if part in whole), None)
            self._spend(len(joined))
            for place, places in joined.items():
                if taken is None:
                    ending[place] |= places
                else:
                    near = _any(self._near[each] for each in self._steps(places))
                    going_on[place].append((taken, near))
        return {
            taken
            for one, crossed in ending.items()
            for other in self._steps(same[one])
            for taken, near in going_on[other]
            if near & crossed
        }

    def _steps(self, places: int) -> Iterator[int]:
        self._spend(places.bit_count())
        while places:
            lowest = places & -places
            yield lowest.bit_length() - 1
            places ^= lowest

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise OverflowError


def parts_of(part: Part) -> Iterator[Part]:
    yield part
    inner = part.parts if isinstance(part, Row | Either) else ()
    for one in (part.part,) if isinstance(part, Repeated) else inner:
        yield from parts_of(one)


def _regular(rules: Rules, refused: Whole) -> Whole:
    """Those without recursion that need none that is refused."""
    used = {
        name: {one.name for one in parts_of(part) if isinstance(one, Rule)}
        for name, part in rules.items()
    }
    sorter = TopologicalSorter({name: used[name] | ({name} & refused) for name in rules})
    with suppress(CycleError):  # what is in none, and needs none, is sorted all the same
        sorter.prepare()
    found: Whole = set()
    while ready := sorter.get_ready():
        found.update(ready)
        sorter.done(*ready)
    return found


def _overlaps(characters: Sequence[Ranges]) -> list[int]:
    """Of each place those that the same text may come to."""
    places: dict[Ranges, int] = defaultdict(int)
    for place, ranges in enumerate(characters):
        places[ranges] |= 1 << place
    if len(places) > MOST_CLASSES:
        raise OverflowError
    near = {
        one: _any(found for other, found in places.items() if _overlap(one, other))
        for one in places
    }
    return [near[ranges] for ranges in characters]


def _overlap(one: Ranges, other: Ranges) -> bool:
    """Whether both may begin with the same byte: of characters that have several, any may."""
    return any(
        (low <= high2 and low2 <= high) or (high > ASCII and high2 > ASCII)
        for low, high in one
        for low2, high2 in other
    )


def _no_places() -> dict[int, int]:
    return defaultdict(int)


def _any(sets: Iterable[int]) -> int:
    union = 0
    for one in sets:
        union |= one
    return union

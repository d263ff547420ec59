"""Which parts of a grammar of characters a greedy lexer may take whole.

llguidance reads the longest terminal that fits and never goes back. That is right as long as no
text ends a terminal in one reading of the grammar and goes on in it in another.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

BEYOND = 0x80  # stands for all characters beyond ASCII: any two may begin with the same byte
MOST_STEPS = 1 << 19  # beyond them nothing is taken whole
TEXT_STEPS = 16  # for a kilobyte of memory

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
Path = int  # the number of one that leads from a recursive rule through rules that are not


Kept = tuple[str | Text, ...]  # rules and at most one text, each within the one before


class Ends(NamedTuple):
    """The places where a part begins and ends."""

    empty: bool
    first: frozenset[int]
    last: frozenset[int]


class Join(NamedTuple):
    """Behind each of `last` each of `first` may follow, all on one path."""

    path: Path
    last: frozenset[int]
    first: frozenset[int]


TOP: Path = 0
NONE: frozenset[int] = frozenset()
NOWHERE, EMPTY = Ends(False, NONE, NONE), Ends(True, NONE, NONE)


def taken_whole(rules: Rules, start: str) -> Whole:
    """The rules and texts that may be terminals, so that each reads as its characters would."""
    used = {name: used_by(part) for name, part in rules.items()}
    users: dict[str | Text, set[str]] = defaultdict(set)
    for name, names in used.items():
        for other in names:
            users[other].add(name)
    regular = _regular(used)
    try:
        places = Places(rules, start, rules.keys() - regular)
        alike = places.alike()
        whole = regular | places.texts
        while wrong := places.wrong(alike, whole):
            while wrong:
                one = wrong.pop()
                if one in whole:
                    whole.remove(one)
                    wrong |= users[one]
    except (OverflowError, RecursionError):
        return set()
    return whole


class Places:
    """Each character of a grammar is a place, wherever a rule without recursion is used another
    one. From which place a recursive rule was reached is forgotten, so more readings are taken for
    possible than are. Raises OverflowError where that takes too many steps.
    """

    def __init__(self, rules: Rules, start: str, recursive: Iterable[str]) -> None:
        self.texts: Whole = set()
        self._rules = rules
        self._left = MOST_STEPS
        self._names: list[tuple[str, ...]] = [()]  # of the rules of each path
        self._paths: dict[tuple[Path, Rule], Path] = {}
        self._masks: list[int] = []  # of each place
        self._masks_of: dict[Text, list[int]] = {}
        self._places: dict[tuple[Path, Text], range] = {}  # each leads to the next one
        self._joins: list[Join] = []  # all other ways on
        self._ends_of = dict.fromkeys(recursive, NOWHERE)
        self._find_ends()
        self._first = self._ends(Rule(start), TOP).first

    def _find_ends(self) -> None:
        before: dict[str, Ends] = {}
        while before != self._ends_of:
            before = self._ends_of
            self._joins.clear()
            self._ends_of = {name: self._ends(self._rules[name], TOP) for name in before}

    def _ends(self, part: Part, path: Path) -> Ends:
        self._spend(1)
        match part:
            case Text():
                return self._ends_of_text(part, path)
            case Rule(name):
                if name in self._ends_of:
                    return self._ends_of[name]
                return self._ends(self._rules[name], self._path(path, part))
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
                    self._union([ends.first for ends in found]),
                    self._union([ends.last for ends in found]),
                )

    def _path(self, path: Path, rule: Rule) -> Path:
        if (path, rule) not in self._paths:
            self._paths[path, rule] = len(self._names)
            self._names.append((*self._names[path], rule.name))
            self._spend(len(self._names[-1]))
        return self._paths[path, rule]

    def _ends_of_text(self, text: Text, path: Path) -> Ends:
        if not text.characters:
            return EMPTY
        places = self._places.get((path, text)) or self._add(text, path)
        return Ends(False, frozenset((places[0],)), frozenset((places[-1],)))

    def _add(self, text: Text, path: Path) -> range:
        self._spend(TEXT_STEPS + len(text.characters))
        self.texts.add(text)
        if text not in self._masks_of:
            self._masks_of[text] = [_mask(ranges) for ranges in text.characters]
        first = len(self._masks)
        self._masks += self._masks_of[text]
        self._places[path, text] = places = range(first, len(self._masks))
        return places

    def _then(self, one: Ends, other: Ends, path: Path) -> Ends:
        self._join(one.last, other.first, path)
        return Ends(
            one.empty and other.empty,
            self._union([one.first, other.first]) if one.empty else one.first,
            self._union([one.last, other.last]) if other.empty else other.last,
        )

    def _join(self, last: frozenset[int], first: frozenset[int], path: Path) -> None:
        if last and first:
            self._joins.append(Join(path, last, first))

    def _union(self, sets: Sequence[frozenset[int]]) -> frozenset[int]:
        self._spend(sum(map(len, sets)))
        return NONE.union(*sets)

    def alike(self) -> set[tuple[int, ...]]:
        """Which places one text may come to, for every text."""
        atoms = self._atoms()
        joins: dict[int, list[int]] = {places[-1]: [] for places in self._places.values()}
        for number, join in enumerate(self._joins):
            self._spend(len(join.last))
            for place in join.last:
                joins[place].append(~number)
        found: set[tuple[int, ...]] = set()
        waiting = {tuple(self._first)}
        known = set(waiting)
        while waiting:
            fresh = self._by_atom(waiting.pop(), atoms) - found
            found |= fresh
            ways = {self._ways_on(places, joins) for places in fresh} - known
            known |= ways
            waiting |= ways
        return found

    def _ways_on(
        self, places: Sequence[int], joins: Mapping[int, Sequence[int]]
    ) -> tuple[int, ...]:
        """To places, and by joins, which are many places each: their numbers' complements."""
        ways = {way for place in places for way in joins.get(place, (place + 1,))}
        self._spend(len(places) + len(ways))
        return tuple(sorted(ways))

    def _by_atom(
        self, ways: Iterable[int], atoms: Mapping[int, Sequence[int]]
    ) -> set[tuple[int, ...]]:
        reached: set[int] = set()
        for way in ways:
            first = self._joins[~way].first if way < 0 else (way,)
            self._spend(len(first))
            reached.update(first)
        by_atom: dict[int, list[int]] = defaultdict(list)
        for place in sorted(reached):
            of_place = atoms[self._masks[place]]
            self._spend(len(of_place))
            for atom in of_place:
                by_atom[atom].append(place)
        return set(map(tuple, by_atom.values()))

    def _atoms(self) -> dict[int, tuple[int, ...]]:
        """Of each mask the numbers of the sets that no mask divides."""
        masks = set(self._masks)
        atoms = [(2 << BEYOND) - 1]
        for mask in masks:
            self._spend(2 * len(atoms))
            atoms = [part for atom in atoms for part in (atom & mask, atom & ~mask) if part]
        return {
            mask: tuple(number for number, atom in enumerate(atoms) if atom & mask)
            for mask in masks
        }

    def wrong(self, alike: Iterable[Sequence[int]], whole: Whole) -> Whole:
        """Of what is taken whole: where a text ends it in one reading and goes on in it in another
        with the same character.
        """
        ending, going_on = self._split(whole)
        wrong: Whole = set()
        for places in alike:
            self._spend(len(places))
            crossed = _any(ending[place] for place in places if place in ending)
            for place in places if crossed else ():
                goes_on = going_on.get(place, {})
                wrong.update(taken for taken, mask in goes_on.items() if mask & crossed)
        return wrong

    def _split(self, whole: Whole) -> tuple[dict[int, int], dict[int, dict[str | Text, int]]]:
        """With which characters each place is gone on from: at an end, or within what is whole."""
        ending: dict[int, int] = defaultdict(int)
        going_on: dict[int, dict[str | Text, int]] = defaultdict(lambda: defaultdict(int))
        for kept, moves in self._moves():
            self._spend(len(kept))
            taken = next((one for one in kept if one in whole), None)
            for place, mask in moves:
                self._spend(1)
                if taken is None:
                    ending[place] |= mask
                else:
                    going_on[place][taken] |= mask
        return ending, going_on

    def _moves(self) -> Iterator[tuple[Kept, Iterable[tuple[int, int]]]]:
        """Within what from which places a text goes on with which characters."""
        for path, last, first in self._joins:
            self._spend(len(first))
            mask = _any(self._masks[place] for place in first)
            yield self._names[path], [(place, mask) for place in last]
        for (path, text), places in self._places.items():
            moves = [(place, self._masks[place + 1]) for place in places[:-1]]
            yield (*self._names[path], text), moves

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise OverflowError


def parts_of(part: Part) -> Iterator[Part]:
    waiting = [part]
    while waiting:
        one = waiting.pop()
        yield one
        match one:
            case Repeated(inner):
                waiting.append(inner)
            case Row(parts) | Either(parts):
                waiting += parts


def used_by(part: Part) -> set[str]:
    return {one.name for one in parts_of(part) if isinstance(one, Rule)}


def _regular(used: Mapping[str, set[str]]) -> set[str]:
    """Rules without recursion that need none with it."""
    sorter = TopologicalSorter(used)
    with suppress(CycleError):  # what is in none, and needs none, is sorted all the same
        sorter.prepare()
    found: set[str] = set()
    while ready := sorter.get_ready():
        found.update(ready)
        sorter.done(*ready)
    return found


def _mask(ranges: Ranges) -> int:
    """A bit for each character of ASCII, and one for those beyond."""
    mask = 0
    for low, high in ranges:
        mask |= (2 << min(high, BEYOND)) - (1 << min(low, BEYOND))
    return mask


def _any(masks: Iterable[int]) -> int:
    union = 0
    for one in masks:
        union |= one
    return union

"""Decides which rules of a character grammar may be terminals of a lexer that is greedy.

A terminal is much faster than a rule. But llguidance's lexer always reads the longest terminal and
never goes back, so a terminal must not hide a reading that the grammar has character by character.

An example, in GBNF:

    root   ::= number unit root?
    number ::= [0-9]+
    unit   ::= "0x" | "m"

The grammar has the text `10x`: the number 1 and the unit 0x. A lexer with the terminal `number`
reads the number 10, and the x that follows fits nothing. So `number` must stay a rule, while
`unit` may be a terminal. With the unit "km" in the place of "0x" both may be terminals. `root`
is recursive, so it is never one.

How the conflict is found:

1. Each character of a literal is a position, as in Glushkov's automaton: [0-9] is 0, the 0 of "0x"
   is 1, its x is 2, and m is 3. After position 0 may follow 0 (the number goes on), 1 and 3.
2. The subset construction gives the sets of positions that a text may be at. `10` may be at
   {0, 1}, `1` only at {0}.
3. In the set {0} the character 0 ends `number`, if it is position 1 that follows, and it continues
   `number`, if it is position 0. This is the conflict: `number` is no terminal.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from deployments.text.grammar.character_grammar import (
    Alternation,
    Concatenation,
    Expression,
    Literal,
    Ranges,
    Repetition,
    RuleReference,
    Rules,
    referenced_rules,
)

NON_ASCII = 0x80  # stands for all characters beyond ASCII: any two may begin with the same byte
MAX_STEPS = 1 << 19  # of a search; a grammar that needs more gets no terminals
STEPS_PER_LITERAL = 16  # as its memory, about a kilobyte, is worth

Terminals = set[str | Literal]  # rules by their names
Positions = frozenset[int]
Path = int  # the number of a chain of rules that are not recursive, below one that is
Nesting = tuple[str | Literal, ...]  # rules and at most one literal, each within the one before


class Edges(NamedTuple):
    """The positions where an expression may begin and end, as Glushkov's construction has them."""

    nullable: bool
    first: Positions
    last: Positions


class Follow(NamedTuple):
    """Any position of `first` may follow any of `last`, in an expression at the end of `path`."""

    path: Path
    last: Positions
    first: Positions


TOP: Path = 0
NONE: Positions = frozenset()
IMPOSSIBLE, EMPTY = Edges(False, NONE, NONE), Edges(True, NONE, NONE)


def greedy_terminals(rules: Rules, start: str) -> Terminals:
    """The rules and literals that may be terminals without any change to what the grammar allows.

    None if the search would take too long.
    """
    references = {name: referenced_rules(rule) for name, rule in rules.items()}
    users: dict[str | Literal, set[str]] = defaultdict(set)
    for name, names in references.items():
        for other in names:
            users[other].add(name)
    regular = _not_recursive(references)
    try:
        automaton = PositionAutomaton(rules, start, rules.keys() - regular)
        states = automaton.states()
        terminals = regular | automaton.literals
        while conflicts := automaton.conflicts(states, terminals):
            while conflicts:
                one = conflicts.pop()
                if one in terminals:
                    terminals.remove(one)
                    conflicts |= users[one]
    except (OverflowError, RecursionError):
        return set()
    return terminals


class PositionAutomaton:
    """Glushkov's automaton of a grammar. Each use of a rule that is not recursive has positions of
    its own.

    A recursive rule has the same positions for all its uses: the automaton forgets from where it
    was reached. So it has some readings that the grammar does not have, and finds no fewer
    conflicts. Raises OverflowError after MAX_STEPS.
    """

    def __init__(self, rules: Rules, start: str, recursive: Iterable[str]) -> None:
        self.literals: Terminals = set()
        self._rules = rules
        self._steps_left = MAX_STEPS
        self._rules_of_path: list[tuple[str, ...]] = [()]
        self._paths: dict[tuple[Path, RuleReference], Path] = {}
        self._masks: list[int] = []  # of each position: its character class
        self._masks_of: dict[Literal, list[int]] = {}
        self._positions: dict[tuple[Path, Literal], range] = {}  # each is followed by the next one
        self._follows: list[Follow] = []  # all other pairs of positions
        self._edges_of = dict.fromkeys(recursive, IMPOSSIBLE)
        self._find_edges_of_recursive_rules()
        self._first = self._edges(RuleReference(start), TOP).first

    def _find_edges_of_recursive_rules(self) -> None:
        """Computes them from each other until nothing changes."""
        before: dict[str, Edges] = {}
        while before != self._edges_of:
            before = self._edges_of
            self._follows.clear()
            self._edges_of = {name: self._edges(self._rules[name], TOP) for name in before}

    def _edges(self, expression: Expression, path: Path) -> Edges:
        self._spend(1)
        match expression:
            case Literal():
                return self._edges_of_literal(expression, path)
            case RuleReference(name):
                if name in self._edges_of:
                    return self._edges_of[name]
                return self._edges(self._rules[name], self._extended(path, expression))
            case Repetition(inner, minimum, maximum):
                edges = self._edges(inner, path)
                if maximum is None or maximum > 1:
                    self._add_follow(edges.last, edges.first, path)
                nullable = edges.nullable or minimum == 0
                return EMPTY if maximum == 0 else edges._replace(nullable=nullable)
            case Concatenation(parts):
                whole = EMPTY
                for part in parts:
                    whole = self._concatenated(whole, self._edges(part, path), path)
                return whole
            case Alternation(parts):
                return self._alternation([self._edges(part, path) for part in parts])

    def _extended(self, path: Path, rule: RuleReference) -> Path:
        if (path, rule) not in self._paths:
            self._paths[path, rule] = len(self._rules_of_path)
            self._rules_of_path.append((*self._rules_of_path[path], rule.name))
            self._spend(len(self._rules_of_path[-1]))
        return self._paths[path, rule]

    def _edges_of_literal(self, literal: Literal, path: Path) -> Edges:
        if not literal.characters:
            return EMPTY
        positions = self._positions.get((path, literal)) or self._add_positions(literal, path)
        return Edges(False, frozenset((positions[0],)), frozenset((positions[-1],)))

    def _add_positions(self, literal: Literal, path: Path) -> range:
        self._spend(STEPS_PER_LITERAL + len(literal.characters))
        self.literals.add(literal)
        if literal not in self._masks_of:
            self._masks_of[literal] = [_mask(ranges) for ranges in literal.characters]
        first = len(self._masks)
        self._masks += self._masks_of[literal]
        self._positions[path, literal] = positions = range(first, len(self._masks))
        return positions

    def _concatenated(self, left: Edges, right: Edges, path: Path) -> Edges:
        self._add_follow(left.last, right.first, path)
        return Edges(
            left.nullable and right.nullable,
            self._union([left.first, right.first]) if left.nullable else left.first,
            self._union([left.last, right.last]) if right.nullable else right.last,
        )

    def _alternation(self, edges: Sequence[Edges]) -> Edges:
        return Edges(
            any(branch.nullable for branch in edges),
            self._union([branch.first for branch in edges]),
            self._union([branch.last for branch in edges]),
        )

    def _add_follow(self, last: Positions, first: Positions, path: Path) -> None:
        if last and first:
            self._follows.append(Follow(path, last, first))

    def _union(self, sets: Sequence[Positions]) -> Positions:
        self._spend(sum(map(len, sets)))
        return NONE.union(*sets)

    def states(self) -> set[tuple[int, ...]]:
        """The subset construction: each set of positions that some text may be at."""
        minterms = self._minterms()
        successors = self._successors()
        found: set[tuple[int, ...]] = set()
        waiting = {tuple(self._first)}
        known = set(waiting)
        while waiting:
            fresh = self._by_minterm(waiting.pop(), minterms) - found
            found |= fresh
            following = {self._following(state, successors) for state in fresh} - known
            known |= following
            waiting |= following
        return found

    def _successors(self) -> dict[int, list[int]]:
        """Maps the last position of each literal to the indices of its follows, complemented.

        A follow is many positions; the complement tells its index from a position.
        """
        successors: dict[int, list[int]] = {
            positions[-1]: [] for positions in self._positions.values()
        }
        for index, follow in enumerate(self._follows):
            self._spend(len(follow.last))
            for position in follow.last:
                successors[position].append(~index)
        return successors

    def _following(
        self, state: Sequence[int], successors: Mapping[int, Sequence[int]]
    ) -> tuple[int, ...]:
        """Returns what may follow a state: positions, and complemented indices of follows."""
        found = {
            target for position in state for target in successors.get(position, (position + 1,))
        }
        self._spend(len(state) + len(found))
        return tuple(sorted(found))

    def _by_minterm(
        self, following: Iterable[int], minterms: Mapping[int, Sequence[int]]
    ) -> set[tuple[int, ...]]:
        """The next states: the positions that one character may lead to, for every character."""
        reached: set[int] = set()
        for target in following:
            first = self._follows[~target].first if target < 0 else (target,)
            self._spend(len(first))
            reached.update(first)
        by_minterm: dict[int, list[int]] = defaultdict(list)
        for position in sorted(reached):
            of_position = minterms[self._masks[position]]
            self._spend(len(of_position))
            for minterm in of_position:
                by_minterm[minterm].append(position)
        return set(map(tuple, by_minterm.values()))

    def _minterms(self) -> dict[int, tuple[int, ...]]:
        """Maps each character class to the numbers of the minterms that it consists of.

        A minterm is a set of characters of which each class has all or none.
        """
        masks = set(self._masks)
        minterms = [(2 << NON_ASCII) - 1]
        for mask in masks:
            self._spend(2 * len(minterms))
            minterms = [
                part for minterm in minterms for part in (minterm & mask, minterm & ~mask) if part
            ]
        return {
            mask: tuple(number for number, minterm in enumerate(minterms) if minterm & mask)
            for mask in masks
        }

    def conflicts(self, states: Iterable[Sequence[int]], terminals: Terminals) -> Terminals:
        """The terminals that one character may both end and continue, at the end of one text."""
        ending, continuing = self._next_characters(terminals)
        found: Terminals = set()
        for state in states:
            self._spend(len(state))
            ends = _union_mask(ending[position] for position in state if position in ending)
            for position in state if ends else ():
                continues = continuing.get(position, {})
                found.update(terminal for terminal, mask in continues.items() if mask & ends)
        return found

    def _next_characters(
        self, terminals: Terminals
    ) -> tuple[dict[int, int], dict[int, dict[str | Literal, int]]]:
        """Maps each position to the characters that may follow it.

        The first map has those outside any terminal, so that it ends. The second one has those
        within each terminal.
        """
        ending: dict[int, int] = defaultdict(int)
        continuing: dict[int, dict[str | Literal, int]] = defaultdict(lambda: defaultdict(int))
        for nesting, transitions in self._transitions():
            self._spend(len(nesting))
            terminal = next((symbol for symbol in nesting if symbol in terminals), None)
            for position, mask in transitions:
                self._spend(1)
                if terminal is None:
                    ending[position] |= mask
                else:
                    continuing[position][terminal] |= mask
        return ending, continuing

    def _transitions(self) -> Iterator[tuple[Nesting, Iterable[tuple[int, int]]]]:
        """Positions with the characters that may follow, by the rules and literal they are in."""
        for path, last, first in self._follows:
            self._spend(len(first))
            mask = _union_mask(self._masks[position] for position in first)
            yield self._rules_of_path[path], [(position, mask) for position in last]
        for (path, literal), positions in self._positions.items():
            transitions = [(position, self._masks[position + 1]) for position in positions[:-1]]
            yield (*self._rules_of_path[path], literal), transitions

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise OverflowError


def _not_recursive(references: Mapping[str, set[str]]) -> set[str]:
    """The rules that neither are recursive nor refer to one that is, however deep."""
    sorter = TopologicalSorter(references)
    with suppress(CycleError):  # rules without a cycle are sorted all the same
        sorter.prepare()
    found: set[str] = set()
    while ready := sorter.get_ready():
        found.update(ready)
        sorter.done(*ready)
    return found


def _mask(ranges: Ranges) -> int:
    """A bit for each ASCII character, and one for all others."""
    mask = 0
    for low, high in ranges:
        mask |= (2 << min(high, NON_ASCII)) - (1 << min(low, NON_ASCII))
    return mask


def _union_mask(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union

"""The expressions of a grammar whose terminals are single characters, as in GBNF.

Two expressions are equal only if they are the same object, so that each is a place in its grammar.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """Characters in a row, each one of a class."""

    characters: tuple[Ranges, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RuleReference:
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """A repeated expression. Without `maximum` there is no upper limit."""

    inner: "Expression"
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Concatenation:
    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alternation:
    parts: tuple["Expression", ...]


Expression = Literal | RuleReference | Repetition | Concatenation | Alternation
Rules = Mapping[str, Expression]


def referenced_rules(expression: Expression) -> set[str]:
    """The names of the rules that an expression refers to itself."""
    return {part.name for part in _within(expression) if isinstance(part, RuleReference)}


def _within(expression: Expression) -> Iterator[Expression]:
    """The expression and all that are in it."""
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        yield one
        match one:
            case Repetition(inner):
                waiting.append(inner)
            case Concatenation(parts) | Alternation(parts):
                waiting += parts

"""Tells which numbers of a JSON Schema llguidance would round, or read as other ones."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TypeGuard

from deployments.text.grammar.schemas.digit_ranges import Bound
from deployments.text.grammar.schemas.json_schema import (
    BOUNDS,
    LITERALS,
    MAX_EXACT,
    filter_keywords,
    subschemas,
)

Schema = Mapping[str, object]

# llguidance may write a number with more digits as another one, and none with so many zeros.
MAX_FLOAT_DIGITS, LEAST_FLOAT = 15, 1e-30


def is_inexact(schema: object) -> bool:
    """Whether llguidance would round a number of the schema itself."""
    if not isinstance(schema, Mapping):
        return False
    bounds = [schema[name] for name in BOUNDS.intersection(schema)]
    literals = [
        each for name in LITERALS.intersection(schema) for each in _numbers_in(schema[name])
    ]
    return any(map(is_rounded, [*bounds, *literals])) or _is_open_at_fraction(schema)


def has_inexact(schema: object) -> bool:
    return any(map(is_inexact, subschemas(schema)))


def without_inexact_bounds(schema: Schema) -> Schema:
    """The schema without the bounds within it that llguidance would round; itself where it has a
    number of this kind itself, or there is none.
    """
    if is_inexact(schema) or not has_inexact(schema):
        return schema
    plain = filter_keywords(schema, lambda name, value: not (name in BOUNDS and is_rounded(value)))
    assert isinstance(plain, Mapping)
    return plain


def _is_fraction(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and not value.is_integer()


def is_rounded(value: object) -> bool:
    if _is_fraction(value):
        n_digits = len(Decimal(repr(value)).as_tuple().digits)
        return n_digits > MAX_FLOAT_DIGITS or abs(value) < LEAST_FLOAT
    # What follows an `exclusiveMinimum` of the last exact integer is the first one that is not.
    return isinstance(value, int | float) and abs(value) >= MAX_EXACT


def _is_open_at_fraction(schema: Schema) -> bool:
    """Whether one end of a range of numbers is left out, and one is no integer: beside a `maximum`
    of 0.5 llguidance lets in the 0 of an `exclusiveMinimum`.
    """
    ends = [end for end in ends_of(schema) if end is not None]
    return (
        schema.get("type") != "integer"
        and len(ends) == 2
        and not all(end.included for end in ends)
        and any(_is_fraction(end.value) for end in ends)
    )


def _numbers_in(value: object) -> Iterator[object]:
    found = [value]
    while found:
        match found.pop():
            case list(several):
                found.extend(several)
            case dict(named):
                found.extend(named.values())
            case number:
                yield number


def ends_of(part: Schema) -> tuple[Bound | None, Bound | None]:
    lows = [*_bounds(part, "minimum", "exclusiveMinimum")]
    highs = [*_bounds(part, "maximum", "exclusiveMaximum")]
    low = max(lows, key=lambda end: (end.value, not end.included), default=None)
    high = min(highs, key=lambda end: (end.value, end.included), default=None)
    return low, high


def _bounds(part: Schema, name: str, exclusive: str) -> Iterator[Bound]:
    closed, open_end = part.get(name), part.get(exclusive)
    if isinstance(closed, int | float):
        yield Bound(closed, open_end is not True)
    if isinstance(open_end, int | float) and not isinstance(open_end, bool):
        yield Bound(open_end, False)

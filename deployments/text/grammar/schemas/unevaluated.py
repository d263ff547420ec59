"""Writes `unevaluatedProperties` as `additionalProperties`, and `unevaluatedItems` as `items`:
llguidance knows these.

What the schemas of one object name together is named by the one that has the keyword.
"""

from collections.abc import Iterator, Mapping

from deployments.text.grammar.schemas.json_schema import NAMED_SCHEMAS, SCHEMAS
from deployments.text.grammar.schemas.references import pointed_at

Schema = Mapping[str, object]

NAMING = ("properties", "patternProperties")
EITHER = ("anyOf", "oneOf")
CONDITIONAL = frozenset(["dependentSchemas", "else", "if", "not", "then"])
COMBINING = CONDITIONAL | frozenset([*EITHER, "$ref", "allOf", "contains"])
ANYTHING: tuple[object, ...] = (True, {})


class NotKnown(Exception):
    """Which names a schema evaluates depends on the value."""


def with_closed_combinations(schema: Schema, *, is_exact: bool) -> Schema:
    """Names of schemas of which any may match are all allowed; where it must be exact, the keyword
    stays. Raises RecursionError for a schema that is too deep.
    """
    closed = _closed(schema, schema, is_exact)
    assert isinstance(closed, Mapping)
    return closed


def _closed(part: object, whole: Schema, is_exact: bool) -> object:
    if isinstance(part, list):
        return [_closed(each, whole, is_exact) for each in part]
    if not isinstance(part, Mapping):
        return part
    inner = {name: _keyword(name, value, whole, is_exact) for name, value in part.items()}
    if "unevaluatedItems" in part:
        inner = _with_plain_items(inner)
    return _with_plain_properties(part, inner, whole, is_exact)


def _with_plain_properties(
    part: Schema, inner: dict[str, object], whole: Schema, is_exact: bool
) -> dict[str, object]:
    if "unevaluatedProperties" not in part:
        return inner
    plain = {name: value for name, value in inner.items() if name != "unevaluatedProperties"}
    others = inner["unevaluatedProperties"]
    if others in ANYTHING:
        return {"additionalProperties": True, **plain}
    try:
        evaluated = [*_evaluated(part, whole, is_exact, 0, set())]
    except (NotKnown, LookupError):
        return inner
    if any("additionalProperties" in each for each in evaluated):
        return plain
    for group in NAMING:
        names = [name for each in evaluated for name in _names(each, group)]
        if names:
            plain[group] = {**dict.fromkeys(names, True), **_names(plain, group)}
    return {**plain, "additionalProperties": others}


def _with_plain_items(inner: dict[str, object]) -> dict[str, object]:
    """Says `items` in the place of `unevaluatedItems` where no other schema is of the same list."""
    plain = {name: value for name, value in inner.items() if name != "unevaluatedItems"}
    others = inner["unevaluatedItems"]
    if others in ANYTHING:
        return plain
    if not COMBINING.isdisjoint(inner):
        return inner
    name = "additionalItems" if isinstance(inner.get("items"), list) else "items"
    return {name: others, **plain}


def _keyword(name: str, value: object, whole: Schema, is_exact: bool) -> object:
    if name in NAMED_SCHEMAS and isinstance(value, Mapping):
        return {key: _closed(each, whole, is_exact) for key, each in value.items()}
    return _closed(value, whole, is_exact) if name in SCHEMAS else value


def _names(part: Schema, group: str) -> Mapping[str, object]:
    named = part.get(group)
    return named if isinstance(named, Mapping) else {}


def _evaluated(
    part: object, whole: Schema, is_exact: bool, depth: int, seen: set[int]
) -> Iterator[Schema]:
    """All schemas that name properties of the same object. `seen` has the ids of those before:
    references to references could lead to one of them a billion times.
    """
    if not isinstance(part, Mapping) or id(part) in seen:
        return
    seen.add(id(part))
    if not CONDITIONAL.isdisjoint(part) or (is_exact and any(name in part for name in EITHER)):
        raise NotKnown
    if depth and part.get("unevaluatedProperties", False) is not False:
        raise NotKnown
    yield part
    for name in ("allOf", *EITHER):
        several = part.get(name)
        for each in several if isinstance(several, list) else ():
            yield from _evaluated(each, whole, is_exact, depth + 1, seen)
    reference = part.get("$ref")
    if isinstance(reference, str):
        yield from _evaluated(pointed_at(whole, reference[1:]), whole, is_exact, depth + 1, seen)

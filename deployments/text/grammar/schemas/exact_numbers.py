"""Writes Lark for JSON Schemas with numbers that llguidance would round: it reads all as float64,
and some ranges of large integers end its process.

What is around such a number is written here, all else stays a schema: `%json {...}`.
"""

import json
from collections.abc import Mapping, Sequence

from deployments.text.grammar.schemas.digit_ranges import range_regex
from deployments.text.grammar.schemas.inexact_numbers import ends_of, is_inexact, is_rounded
from deployments.text.grammar.schemas.json_schema import (
    ANNOTATIONS,
    BOUNDS,
    DEFINITIONS,
    LITERALS,
    TYPES,
    subschemas,
)
from deployments.text.grammar.schemas.references import needed_definitions, pointed_at
from deployments.text.grammar.schemas.wellformed import UNKNOWN, has_form

Schema = Mapping[str, object]

EITHER = frozenset(["anyOf", "oneOf"])
KNOWN = UNKNOWN | EITHER | LITERALS | BOUNDS | frozenset(
    [
        "$ref", "additionalItems", "additionalProperties", "allOf", "format", "items", "maxItems",
        "maxLength", "maxProperties", "minItems", "minLength", "minProperties", "multipleOf",
        "pattern", "patternProperties", "prefixItems", "properties", "required", "type",
        "unevaluatedItems", "unevaluatedProperties",
    ]
)  # fmt: skip
NUMERIC = BOUNDS | {"multipleOf", "type"}
OBJECT = frozenset(["additionalProperties", "properties", "required", "type"])
ARRAY = frozenset(["items", "maxItems", "minItems", "prefixItems", "type"])
MAX_CHARACTERS = 256 << 10  # more would be too long as a grammar
# The keywords that say something of values of one type alone.
OF_TYPE = {
    "number": BOUNDS | {"multipleOf"},
    "string": frozenset(["format", "maxLength", "minLength", "pattern"]),
    "object": frozenset(
        ["additionalProperties", "maxProperties", "minProperties", "patternProperties",
         "properties", "required", "unevaluatedProperties"]
    ),
    "array": frozenset(
        ["additionalItems", "items", "maxItems", "minItems", "prefixItems", "unevaluatedItems"]
    ),
}  # fmt: skip
STRING = r'/"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt])*"/'


class NotExact(Exception):
    """A number that llguidance would round stands where it can't be written as digits."""


class NoValue(NotExact):
    """No number, list or object fits."""


def exact_lark(schema: Schema, options: Mapping[str, object], whitespace: str) -> str:
    """The values of a schema, of which `options` go to each part. Raises NotExact."""
    return _Writer(schema, options).write(whitespace)


def as_schema(value: object) -> Schema:
    """The schema of one value."""
    match value:
        case list(items):
            parts = [as_schema(each) for each in items]
            return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
        case dict(named):
            parts_of = {name: as_schema(each) for name, each in named.items()}
            closed = {"required": [*named], "additionalProperties": False}
            return {"type": "object", "properties": parts_of, **closed}
        case float(number) if number.is_integer():
            return {"type": "integer", "minimum": int(number), "maximum": int(number)}
        case float(number) if is_rounded(number):
            return {"type": "number", "minimum": number, "maximum": number}
        case int(number) if not isinstance(number, bool):
            return {"type": "integer", "minimum": number, "maximum": number}
    return {"const": value}


class _Writer:
    def __init__(self, whole: Schema, options: Mapping[str, object]) -> None:
        self._whole = whole
        self._options = options
        self._definitions = {name: whole[name] for name in DEFINITIONS if name in whole}
        self._lines: list[str] = []
        self._named: dict[str, str] = {}  # rules of what references name
        self._added: dict[str, str] = {}  # all others, by what they stand for
        self._n_characters = 0  # of schemas

    def write(self, whitespace: str) -> str:
        root = {name: value for name, value in self._whole.items() if name not in DEFINITIONS}
        start = self._rule("#", root)
        head = '%llguidance {"ignore_once": true}\n%ignore /' + whitespace + "/\n"
        return "\n".join([f"{head}start: {start}", *self._lines])

    def _rule(self, pointer: str, part: object) -> str:
        if pointer not in self._named:
            name = self._named[pointer] = f"ref_{len(self._named)}"
            self._lines.append(f"{name}: {self._lark(part)}")
        return self._named[pointer]

    def _add(self, kind: str, body: str) -> str:
        if body not in self._added:
            self._added[body] = f"{kind}{len(self._lines)}"
            self._lines.append(f"{self._added[body]}: {body}")
        return self._added[body]

    def _reaches(self, part: object, seen: set[str]) -> bool:
        """Whether a number is inexact in the part, or in what it refers to."""
        for each in subschemas(part):
            if is_inexact(each):
                return True
            pointer = each.get("$ref") if isinstance(each, Mapping) else None
            if isinstance(pointer, str) and pointer not in seen:
                seen.add(pointer)
                if self._reaches(self._target(pointer), seen):
                    return True
        return False

    def _target(self, pointer: str) -> object:
        return pointed_at(self._whole, pointer[1:]) if pointer != "#" else self._whole

    def _lark(self, part: object) -> str:
        if not isinstance(part, Mapping):
            return self._json(part)
        if [*part] == ["$ref"]:
            return self._referred(part)
        if not self._reaches(part, set()):
            return self._json(part)
        part = {name: value for name, value in part.items() if name in KNOWN}
        self._check(part)
        if "allOf" in part:
            return self._lark(self._merged(part))
        if "$ref" in part:
            return self._referred(part)
        if either := EITHER.intersection(part):
            return self._either(part, *either)
        if LITERALS.intersection(part):
            return self._literals(part)
        return " | ".join(self._typed(kind, part) for kind in sorted(_types(part)))

    def _check(self, part: Schema) -> None:
        for name, value in part.items():
            if name in UNKNOWN or not has_form(name, value):
                raise NotExact(f"`{name}`")
        named = part.get("type", [])
        if not TYPES.issuperset(named if isinstance(named, list) else [named]):
            raise NotExact("`type`")

    def _json(self, part: object) -> str:
        schema = part if isinstance(part, Mapping) else {"allOf": [part]}
        if "#" in [each.get("$ref") for each in subschemas(part) if isinstance(each, Mapping)]:
            raise NotExact("a reference to the whole schema")
        needed = needed_definitions(part, self._definitions)
        text = f"%json {json.dumps({**needed, **schema, **self._options})}"
        self._n_characters += len(text)
        if self._n_characters > MAX_CHARACTERS:
            raise NotExact("too much is beside it")
        return text

    def _referred(self, part: Schema) -> str:
        pointer = str(part["$ref"])
        if len(part) > 1:
            raise NotExact("`$ref` beside other keywords")
        return self._rule(pointer, self._target(pointer))

    def _merged(self, part: Schema) -> Schema:
        """Bounds of several schemas of one number as those of one schema."""
        several = part["allOf"]
        rest = {name: value for name, value in part.items() if name != "allOf"}
        parts: list[object] = [rest, *(several if isinstance(several, list) else [])]
        parts = [schema for schema in parts if schema not in ({}, True)]
        if len(parts) == 1 and isinstance(parts[0], Mapping):
            return parts[0]
        parts = [self._resolved(schema) for schema in parts]
        merged: dict[str, object] = {}
        for schema in parts:
            if not isinstance(schema, Mapping) or not schema.keys() <= NUMERIC | ANNOTATIONS:
                raise NotExact("`allOf`")
            for name in NUMERIC.intersection(schema):
                merged[name] = (
                    _both(name, merged[name], schema[name]) if name in merged else schema[name]
                )
        return merged

    def _resolved(self, part: object) -> object:
        if isinstance(part, Mapping) and [*part] == ["$ref"]:
            return self._target(str(part["$ref"]))
        return part

    def _either(self, part: Schema, name: str, *more: str) -> str:
        several = part[name]
        if more or not part.keys() <= {name, "type"}:
            raise NotExact(f"`{name}` beside other keywords")
        if not isinstance(several, list):
            raise NotExact(f"`{name}`")
        kinds = [kind for schema in several for kind in _without_integers(_types(schema))]
        if name == "oneOf" and len(kinds) != len({*kinds}):
            raise NotExact("`oneOf` of one type")
        if "type" in part and any(
            "type" not in schema or _types(schema) - _types(part) for schema in several
        ):
            raise NotExact(f"`type` beside `{name}`")
        return "(" + " | ".join(self._lark(schema) for schema in several) + ")"

    def _literals(self, part: Schema) -> str:
        if not part.keys() <= LITERALS | {"type"} or len(LITERALS.intersection(part)) > 1:
            raise NotExact("`const` or `enum` beside other keywords")
        listed = part["enum"] if "enum" in part else [part["const"]]
        schemas = [as_schema(each) for each in listed] if isinstance(listed, list) else []
        allowed = [schema for schema in schemas if _types(schema) & _with_integers(_types(part))]
        if not allowed:
            raise NoValue("`enum`")
        return "(" + " | ".join(self._lark(schema) for schema in allowed) + ")"

    def _typed(self, kind: str, part: Schema) -> str:
        """The values of one type."""
        if kind in ("integer", "number"):
            return self._numbers(kind == "integer", part)
        foreign = frozenset().union(*(OF_TYPE[other] for other in OF_TYPE.keys() - {kind}))
        rest = {name: value for name, value in part.items() if name not in foreign}
        if not self._reaches(rest, set()):
            return self._json({**rest, "type": kind})
        if kind == "object" and rest.keys() <= OBJECT:
            return self._object(rest)
        if kind == "array" and rest.keys() <= ARRAY:
            return self._array(rest)
        raise NotExact(f"a large number beside {', '.join(rest)}")

    def _numbers(self, is_integer: bool, part: Schema) -> str:
        if part.get("multipleOf", 1) != 1:
            raise NotExact("`multipleOf`")
        is_integer |= "multipleOf" in part
        try:
            regex = range_regex(*ends_of(part), is_integer)
        except ValueError as failure:
            raise NotExact(str(failure)) from failure
        if not regex:
            raise NoValue("its bounds")
        return self._add("NUMBER", f"/{regex}/")

    def _object(self, part: Schema) -> str:
        named, required = part.get("properties", {}), part.get("required", [])
        more = part.get("additionalProperties", True)
        assert isinstance(named, Mapping)
        assert isinstance(required, list)
        known = {**named, **{name: more for name in required if name not in named}}
        items = [
            (self._add("pair", f'{_quoted(name)} ":" {self._value(value)}'), name in required)
            for name, value in known.items() if value is not False
        ]  # fmt: skip
        if any(known[name] is False for name in required):
            raise NoValue("`required`")
        rest = ""
        if more is not False:
            taken = " | ".join(map(_quoted, known))
            text = f"{STRING} & ~({taken})" if taken else STRING
            rest = self._add("pair", f'{self._add("KEY", text)} ":" {self._value(more)}')
        return f'("{{" {self._listed(items, rest)} "}}")'

    def _value(self, part: object) -> str:
        return self._add("item", self._lark(part))

    def _listed(self, items: Sequence[tuple[str, bool]], rest: str) -> str:
        """The items in their order, those that are not required maybe, and any number of `rest`."""
        first = f'({rest} ("," {rest})*)?' if rest else ""
        after = f'("," {rest})*' if rest else ""
        first = self._add("first", first or '""')
        after = self._add("after", after or '""')
        for item, is_required in reversed(items):
            begun = self._add("first", f"{item} {after}" + ("" if is_required else f" | {first}"))
            follows = f'"," {item}' if is_required else f'("," {item})?'
            first, after = begun, self._add("after", f"{follows} {after}")
        return first

    def _array(self, part: Schema) -> str:
        prefix, least = part.get("prefixItems", []), part.get("minItems", 0)
        most, more = part.get("maxItems"), part.get("items", True)
        assert isinstance(least, int)
        assert isinstance(prefix, list)
        if isinstance(more, list) or (most is not None and not isinstance(most, int)):
            raise NotExact("`items`")
        parts = prefix[:most]
        items = [(self._value(schema), index < least) for index, schema in enumerate(parts)]
        rest = "" if more is False or most == len(parts) else self._value(more)
        if most is not None and least > most:
            raise NoValue(f"minItems {least}, maxItems {most}")
        if not parts and rest:
            n_more = "" if most is None else most - 1
            others = f' ("," {rest}){{{max(least - 1, 0)},{n_more}}}' if most != 1 else ""
            several = f"{rest}{others}"
            return f'("[" {several} "]")' if least else f'("[" ({several})? "]")'
        if least > len(parts) or (most is not None and rest):
            raise NotExact("`prefixItems` beside other items")
        return f'("[" {self._in_order(items, rest)} "]")'

    def _in_order(self, items: Sequence[tuple[str, bool]], rest: str) -> str:
        """The items in their order, of which the last ones may be missing, and any number of `rest`
        behind them all.
        """
        written = f'("," {rest})*' if rest else '""'
        for index, (item, is_required) in reversed([*enumerate(items)]):
            comma = '"," ' if index else ""
            written = f"{comma}{item} {self._add('after', written)}"
            written = written if is_required else f"({written})?"
        return self._add("first", written)


def _quoted(name: str) -> str:
    return json.dumps(json.dumps(name, ensure_ascii=False))


def _types(part: object) -> frozenset[str]:
    named = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and "const" in part and named is None:
        named = _kind(part["const"])
    several = named if isinstance(named, list) else [named]
    known = frozenset(str(each) for each in several) & TYPES
    return known or TYPES - {"integer"}


def _kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
    return "number"


def _with_integers(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _without_integers(types: frozenset[str]) -> frozenset[str]:
    """The types with integers as the numbers that they are."""
    return types - {"integer"} | {"number"} if "integer" in types else types


def _both(name: str, one: object, other: object) -> object:
    if name == "type":
        both = _with_integers(_types({name: one})) & _with_integers(_types({name: other}))
        if not both or not both <= {"integer", "number"}:
            raise NotExact("`type` in `allOf`")
        return "number" if "number" in both else "integer"
    if name == "multipleOf" or isinstance(one, bool) or isinstance(other, bool):
        raise NotExact(f"`{name}` in `allOf`")
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    return max(one, other) if name in ("minimum", "exclusiveMinimum") else min(one, other)

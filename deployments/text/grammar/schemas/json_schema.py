"""Filters the keywords of JSON Schemas: llguidance gets only those that constrain a value."""

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

KeywordFilter = Callable[[str, object], bool]

# The formats of strings that llguidance knows. To JSON Schema all others are annotations.
FORMATS = frozenset(
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"]
)
ANY_NAME = {"type": "string"}
# Keywords whose value is a schema or a list of schemas.
SCHEMAS = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
# Keywords whose value is an object of schemas.
NAMED_SCHEMAS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
TYPES = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
# What clients write in the place of JSON Schema's types. "any" is each of them.
TYPE_ALIASES = {
    "float": "number",
    "double": "number",
    "decimal": "number",
    "int": "integer",
    "long": "integer",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "str": "string",
    "bool": "boolean",
    "none": "null",
    "any": "any",
}
DEFINITIONS = ("$defs", "definitions")
COUNTS = frozenset(
    ["maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"]
)
# Keywords that constrain no value by themselves.
ANNOTATIONS = frozenset(
    [
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "definitions",
        "deprecated",
        "description",
        "example",
        "examples",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
BOUNDS = frozenset(["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"])
CONDITIONS = ("if", "then", "else", "not")  # of the same value
LITERALS = frozenset({"const", "enum"})
ENDLESS = 1 << 32  # no answer is that long, and llguidance counts no further
MAX_EXACT = 1 << 53  # the integers up to here are exact in float64
NO_LINE_END = r"[^\n\r\u{2028}\u{2029}]"
DATA = frozenset({"const", "default", "enum", "example", "examples"})  # their values are data


def constrains(name: str, value: object) -> bool:
    """Whether the keyword constrains a value."""
    match name:
        case "uniqueItems":
            return value is not False
        case "propertyNames":
            return value is not True and value not in ({}, ANY_NAME)
        case "format":
            return not isinstance(value, str) or value in FORMATS
        case "maxItems" | "maxLength" | "maxProperties":
            return not isinstance(value, int | float) or value < ENDLESS
    return True


def filter_keywords(schema: object, keeps: KeywordFilter) -> object:
    """The schema with only the keywords that `keeps` accepts, at every level."""
    if isinstance(schema, list):
        return [filter_keywords(part, keeps) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: _filter_keyword(name, value, keeps)
        for name, value in schema.items()
        if keeps(name, value)
    }


def _filter_keyword(name: str, value: object, keeps: KeywordFilter) -> object:
    if name in COUNTS and isinstance(value, float):  # llguidance reads no 1.0 as an integer
        count = as_integer(value)
        return value if count is None else count
    if name == "pattern" and isinstance(value, str):
        return rust_pattern(value)
    if name in NAMED_SCHEMAS and isinstance(value, Mapping):
        return {
            rust_pattern(key) if name == "patternProperties" else key: filter_keywords(part, keeps)
            for key, part in value.items()
        }
    return filter_keywords(value, keeps) if name in SCHEMAS else value


def rust_pattern(pattern: str) -> str:
    """Returns a pattern of ECMAScript in the syntax of Rust, which llguidance reads.

    Within a class ECMAScript has characters alone. In Rust a `[` begins another class there, as in
    `[[:alpha:]]`, and `&&`, `~~` and `--` are operations on sets. A dot of ECMAScript stands for no
    end of a line, of which Rust knows one.
    """
    found: list[str] = []
    is_within, at = False, 0
    while at < len(pattern):
        part = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(part)
        if not is_within:
            is_within = part == "["
            part = NO_LINE_END if part == "." else part
        elif part == "]":
            is_within = False
        elif part == "[" or (part in "&~-" and found[-1] == part) or _is_first_dash(part, found):
            part = f"\\{part}"
        found.append(part)
    return "".join(found)


def _is_first_dash(part: str, before: list[str]) -> bool:
    """Whether a part is the first of its class, and may begin a range there."""
    return part == "-" and (before[-1] == "[" or before[-2:] == ["[", "^"])


def as_integer(value: object) -> int | None:
    """The value as an integer, if it is one: to JSON Schema 1.0 is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_type(value: object) -> str:
    """The type of JSON Schema that a client means, or "any"; "" for none that is known."""
    name = value.strip().lower() if isinstance(value, str) else ""
    return name if name in TYPES else TYPE_ALIASES.get(name, "")


def unsupported_min_properties(schema: Mapping[str, object]) -> Iterator[int]:
    """Each `minProperties` that needs two properties or more that `required` does not name.

    A grammar cannot count these, because it cannot tell whether a name comes twice.
    """
    for part in _all_schemas(schema):
        least, named = part.get("minProperties"), part.get("required")
        n_named = len(named) if isinstance(named, list) else 0
        if isinstance(least, int) and least > n_named + 1:
            yield least


def subschemas(schema: object) -> Iterator[object]:
    """The schema and all within it, but for its definitions."""
    found = [schema]
    while found:
        part = found.pop()
        yield part
        for name, value in part.items() if isinstance(part, Mapping) else ():
            if name in NAMED_SCHEMAS and name not in DEFINITIONS and isinstance(value, Mapping):
                found.extend(value.values())
            elif name in SCHEMAS:
                found.extend(value if isinstance(value, list) else [value])


def most_combined_patterns(schema: Mapping[str, object]) -> int:
    """The most `pattern`s that one string has to match at once."""
    counted: dict[int, int] = {}
    return max((_n_combined(part, schema, counted) for part in _all_schemas(schema)), default=0)


def _n_combined(part: object, whole: Mapping[str, object], counted: dict[int, int]) -> int:
    """`counted` has those of parts by their ids; a part within itself counts nothing."""
    if not isinstance(part, Mapping):
        return 0
    if id(part) not in counted:
        counted[id(part)] = 0
        all_of, reference = part.get("allOf"), part.get("$ref")
        together = [*(all_of if isinstance(all_of, list) else ()), *map(part.get, CONDITIONS)]
        if isinstance(reference, str):
            together.append(_target(whole, reference))
        n = int("pattern" in part)
        n += sum(_n_combined(schema, whole, counted) for schema in together)
        for name in ("anyOf", "oneOf"):
            either = part.get(name)
            parts = either if isinstance(either, list) else ()
            n += max((_n_combined(schema, whole, counted) for schema in parts), default=0)
        counted[id(part)] = n
    return counted[id(part)]


def _target(whole: Mapping[str, object], reference: str) -> object:
    found: object = whole
    for name in unquote(reference).removeprefix("#").strip("/").split("/"):
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


def n_pattern_properties(schema: Mapping[str, object]) -> int:
    named = (part.get("patternProperties") for part in _all_schemas(schema))
    return sum(len(properties) for properties in named if isinstance(properties, Mapping))


def _all_schemas(schema: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    found: list[object] = [schema]
    while found:
        part = found.pop()
        if isinstance(part, Mapping):
            found.extend(_schemas_in(part))
            yield part
        elif isinstance(part, list):
            found.extend(part)


def _schemas_in(schema: Mapping[str, object]) -> Iterator[object]:
    """All values that a reference may name, so also under names that are no keywords."""
    for name, value in schema.items():
        if name in NAMED_SCHEMAS and isinstance(value, Mapping):
            yield from value.values()
        elif name not in DATA:
            yield value

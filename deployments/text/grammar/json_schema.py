"""JSON Schemas as llguidance is given them: without the keywords that ask nothing of a value."""

from collections.abc import Callable, Iterator, Mapping

Keeps = Callable[[str, object], bool]

# Of strings, those that llguidance knows; JSON Schema has all others for annotations.
FORMATS = frozenset(
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"]
)
ANY_NAME = {"type": "string"}
# The keywords that have schemas: one or a list of them, or one for each name.
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
NAMED_SCHEMAS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
DATA = frozenset({"const", "default", "enum", "example", "examples"})  # have values, not schemas


def asks(name: str, value: object) -> bool:
    """Whether a keyword asks anything of a value."""
    match name:
        case "uniqueItems":
            return value is not False
        case "propertyNames":
            return value is not True and value not in ({}, ANY_NAME)
        case "format":
            return not isinstance(value, str) or value in FORMATS
    return True


def sifted(schema: object, keeps: Keeps) -> object:
    """The schema, and all that are in it, with those of its keywords that `keeps` wants."""
    if isinstance(schema, list):
        return [sifted(part, keeps) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: _sifted_keyword(name, value, keeps)
        for name, value in schema.items()
        if keeps(name, value)
    }


def _sifted_keyword(name: str, value: object, keeps: Keeps) -> object:
    if name in NAMED_SCHEMAS and isinstance(value, Mapping):
        return {key: sifted(part, keeps) for key, part in value.items()}
    return sifted(value, keeps) if name in SCHEMAS else value


def too_few_names(schema: Mapping[str, object]) -> Iterator[int]:
    """Each minProperties that only several unnamed properties reach: keys may come twice."""
    found: list[object] = [schema]
    while found:
        part = found.pop()
        if isinstance(part, Mapping):
            found.extend(_schemas_in(part))
            least, named = part.get("minProperties"), part.get("required")
            n_named = len(named) if isinstance(named, list) else 0
            if isinstance(least, int) and least > n_named + 1:
                yield least
        elif isinstance(part, list):
            found.extend(part)


def _schemas_in(schema: Mapping[str, object]) -> Iterator[object]:
    """Wherever a reference may lead, and so under names that are no keywords too."""
    for name, value in schema.items():
        if name in NAMED_SCHEMAS and isinstance(value, Mapping):
            yield from value.values()
        elif name not in DATA:
            yield value

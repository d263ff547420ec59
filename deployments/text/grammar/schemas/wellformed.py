"""Tells of each keyword of a JSON Schema whether its value has the form that it must have, and
leaves out the keywords that have not, so that all others are kept to.
"""

from collections.abc import Callable, Mapping

from deployments.text.grammar.schemas.json_schema import (
    BOUNDS,
    COUNTS,
    DATA,
    NAMED_SCHEMAS,
    SCHEMAS,
    as_integer,
    as_type,
    constrains,
)

LeftOut = Callable[[str], object]  # takes what is left out of a schema, and why

LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
# What no grammar can express.
UNKNOWN = frozenset(
    [
        "$dynamicRef",
        "$recursiveRef",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "not",
        "propertyNames",
        "then",
        "uniqueItems",
    ]
)
# Those of them whose schemas may name properties that the schema around does not.
CONDITIONAL = frozenset(["dependencies", "dependentSchemas", "else", "then"])
NAMING = frozenset(["$ref", "patternProperties", "properties"])


def wellformed(schema: object, left_out: LeftOut, path: str = "") -> object:
    """The schema without the keywords whose values have another form than they must have, and
    without those that no grammar can express. Raises RecursionError for one that is too deep.
    """
    if isinstance(schema, list):
        return [wellformed(part, left_out, f"{path}[{i}]") for i, part in enumerate(schema)]
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        left_out(f"{path or 'all of it'}: it is no schema")
        return True
    kept: dict[str, object] = {}
    may_name_more = False
    for name, value in schema.items():
        where = f"{path}.{name}" if path else name
        if name == "type":
            types = _types(value, where, left_out)
            if types is not None:
                kept[name] = types
        elif name in UNKNOWN:
            if constrains(name, value):
                left_out(f"{where}: no grammar can express it")
                may_name_more |= name in CONDITIONAL and _names_properties(value)
        elif has_form(name, value):
            kept[name] = _inner(name, value, where, left_out)
        elif value is not None:
            left_out(f"{where}: its value has a wrong form")
    if may_name_more and "additionalProperties" not in kept:
        kept["additionalProperties"] = True
        kept.pop("unevaluatedProperties", None)
    return kept


def _names_properties(value: object) -> bool:
    """Whether a schema, or a schema within, names properties; or refers to one that may."""
    found = [value]
    while found:
        match found.pop():
            case list(several):
                found.extend(several)
            case dict(named) if NAMING.isdisjoint(named):
                found.extend(named.values())
            case dict():
                return True
    return False


def _inner(name: str, value: object, path: str, left_out: LeftOut) -> object:
    if name in NAMED_SCHEMAS and isinstance(value, Mapping):
        return {key: wellformed(part, left_out, f"{path}.{key}") for key, part in value.items()}
    return wellformed(value, left_out, path) if name in SCHEMAS and name not in DATA else value


def has_form(name: str, value: object) -> bool:
    """Whether the value of a keyword has the form that JSON Schema asks for."""
    if name in COUNTS:
        count = as_integer(value)
        return count is not None and 0 <= count < 1 << 53
    if name in BOUNDS and isinstance(value, bool):
        return name.startswith("exclusive")  # as in draft 4
    if name in BOUNDS or name == "multipleOf":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (name != "multipleOf" or value != 0)
    if name in NAMED_SCHEMAS:
        return isinstance(value, Mapping)
    if name in ("pattern", "format", "$ref"):
        return isinstance(value, str)
    if name == "required":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if name == "enum" or name in LISTS:
        return isinstance(value, list) and bool(value)
    if name in SCHEMAS:
        return isinstance(value, bool | Mapping) or (name == "items" and isinstance(value, list))
    return True


def _types(value: object, path: str, left_out: LeftOut) -> str | list[str] | None:
    """Returns None for any type."""
    several = value if isinstance(value, list) else [value]
    known = list(dict.fromkeys(map(as_type, several)))
    if not known or "" in known:
        if value is not None:
            left_out(f"{path}: {str(value)[:40]!r} is no type")
        return None
    if "any" in known:
        return None
    return known if len(known) > 1 else known[0]

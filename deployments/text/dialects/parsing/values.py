"""Translates the values of parameters that a dialect writes as plain text to JSON.

If the schema allows only strings, the value is a string. Otherwise it is the JSON value that the
text spells, if the schema allows its type or names no type; a string, if the schema allows one;
else the JSON value all the same.
"""

from collections.abc import Iterable, Mapping

from deployments.text.dialects.parsing.literals import literal_json, to_json
from deployments.text.grammar.schemas.json_schema import TYPES, as_type

Types = frozenset[str]  # of JSON Schema; empty if a schema names none
STRING: Types = frozenset({"string"})
KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
MAX_DEPTH = 8  # of combined schemas


def parameter_types(parameters: Mapping[str, object], name: str) -> Types:
    properties = parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, Mapping) else None
    if schema is None:
        schema = parameters.get("additionalProperties")
    return types_of(schema, parameters)


def types_of(schema: object, root: Mapping[str, object], depth: int = MAX_DEPTH) -> Types:
    """The types that a schema allows; empty if it names none or is too complex."""
    if not isinstance(schema, Mapping) or depth == 0:
        return frozenset()
    match schema:
        case {"type": str() | list() as types}:
            return _named(types)
        case {"const": value}:
            return frozenset({_kind(to_json(value))})
        case {"enum": list(values)}:
            return frozenset(_kind(to_json(value)) for value in values)
        case {"anyOf": list(parts)} | {"oneOf": list(parts)}:
            return _union(types_of(part, root, depth - 1) for part in parts)
        case {"allOf": [only]}:
            return types_of(only, root, depth - 1)
        case {"$ref": str(reference)}:
            return types_of(_resolved(reference, root), root, depth - 1)
    return frozenset()


def _named(types: str | list[object]) -> Types:
    named = frozenset(map(as_type, types if isinstance(types, list) else [types]))
    return named if TYPES.issuperset(named) else frozenset()


def value_json(text: str, types: Types) -> str:
    if types == STRING:
        return to_json(text)
    word = text.strip()
    read = literal_json(word) or literal_json(word.lower())
    if read is not None and (not types or _fits(read, types)):
        return read
    return to_json(text) if read is None or "string" in types else read


def _fits(read: str, types: Types) -> bool:
    kind = _kind(read)
    if kind == "integer":
        return bool(types & {"integer", "number"})
    if kind == "string" and len(types) > 1:
        return False  # the quotes are part of the text
    return kind in types


def _kind(read: str) -> str:
    return KINDS.get(read[0]) or ("integer" if read.lstrip("-").isdigit() else "number")


def _union(types: Iterable[Types]) -> Types:
    members = list(types)
    return frozenset().union(*members) if all(members) else frozenset()


def _resolved(reference: str, root: Mapping[str, object]) -> object:
    """The part of the schema that a reference names; None if there is none."""
    found: object = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found

"""Closes the objects of JSON Schemas: without `additionalProperties` an object has the properties
that its schema names, and no others. A model could add properties for ever.

Schemas that are one of several for the same value stay open, because each names a part only. With
`unevaluatedProperties` false all of them together are closed.
"""

from collections.abc import Mapping

from deployments.text.grammar.schemas.json_schema import NAMED_SCHEMAS, SCHEMAS

Schema = Mapping[str, object]

MAX_ROUNDS = 16  # longer chains of references than that leave a schema as it is
NAMING = ("properties", "patternProperties")
SAYS_MORE = frozenset({"additionalProperties", "unevaluatedProperties"})
# Keywords with schemas of the very value that the schema with the keyword is for.
ALTERNATIVES = frozenset({"anyOf", "oneOf"})
SAME_VALUE = ALTERNATIVES | {"allOf", "if", "then", "else", "not", "dependentSchemas"}


def with_closed_objects(schema: Schema) -> Schema:
    """Raises RecursionError for a schema that is too deep."""
    partial: set[str] = set()  # references to schemas that are one of several for a value
    for _ in range(MAX_ROUNDS):
        known = len(partial)
        closed = _Closer(partial).close(schema, "#", False)
        if len(partial) == known:
            assert isinstance(closed, Mapping)
            return closed
    return schema


class _Closer:
    def __init__(self, partial: set[str]) -> None:
        self._partial = partial

    def close(self, schema: object, path: str, is_partial: bool) -> object:
        """The schema at a path, with all that is in it. `is_partial`: others are for the same
        value.
        """
        if isinstance(schema, list):
            return [self.close(part, f"{path}/{i}", is_partial) for i, part in enumerate(schema)]
        if not isinstance(schema, Mapping):
            return schema
        is_partial = is_partial or path in self._partial
        shares = is_partial or _is_combined(schema)
        if "$ref" in schema and shares:
            self._partial.add(str(schema["$ref"]))
        inner = {
            name: self._keyword(name, value, f"{path}/{name}", shares)
            for name, value in schema.items()
        }
        return inner if shares or not _can_be_closed(schema) else _closed(inner)

    def _keyword(self, name: str, value: object, path: str, shares: bool) -> object:
        is_partial = name in SAME_VALUE and shares
        if isinstance(value, Mapping) and (name in NAMED_SCHEMAS):
            return {
                key: self.close(part, f"{path}/{_pointer(key)}", is_partial)
                for key, part in value.items()
            }
        return self.close(value, path, is_partial) if name in SCHEMAS else value


def _pointer(key: str) -> str:
    """Writes a key as JSON Pointer does."""
    return key.replace("~", "~0").replace("/", "~1")


def _is_combined(schema: Schema) -> bool:
    """Whether the value of the schema has to fit several schemas at once."""
    combining = [name for name in SAME_VALUE | {"$ref"} if name in schema]
    if not combining:
        return False
    parts = schema.get("allOf")
    if combining == ["allOf"] and isinstance(parts, list) and len(parts) > 1:
        return True
    is_several = len(combining) > 1 or combining[0] in ("if", "then", "else", "not")
    return is_several or any(name in schema for name in (*NAMING, "required", "minProperties"))


def _can_be_closed(schema: Schema) -> bool:
    named = schema.get("properties", {})
    least = schema.get("minProperties", 0)
    return (
        any(isinstance(schema.get(name), Mapping) for name in NAMING)
        and SAYS_MORE.isdisjoint(schema)
        and isinstance(named, Mapping)
        and (not isinstance(least, int) or least <= len(named))
    )


def _closed(schema: dict[str, object]) -> dict[str, object]:
    """Required properties that the schema does not describe may be anything."""
    named, required = schema.get("properties", {}), schema.get("required", [])
    assert isinstance(named, Mapping)
    names = required if isinstance(required, list) else []
    more = {name: True for name in names if isinstance(name, str) and name not in named}
    if more and "patternProperties" not in schema:
        schema = {**schema, "properties": {**named, **more}}
    return {**schema, "additionalProperties": False}

"""Finds the part of a JSON Schema that a grammar can express: the smallest parts that none can
express are left out.

Whether one can is for `can_express` to say. How often it is asked, and how much, is bounded.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from deployments.text.grammar.schemas.inexact_numbers import without_inexact_bounds
from deployments.text.grammar.schemas.json_schema import DEFINITIONS, NAMED_SCHEMAS, SCHEMAS
from deployments.text.grammar.schemas.references import needed_definitions
from deployments.text.grammar.schemas.wellformed import LeftOut

Schema = Mapping[str, object]

MAX_ASKED = 300
MAX_TRIED = 16  # of the schemas that one keyword names
MAX_BYTES_ASKED = 4 << 20
# What is for the other items or properties is for more of them where one of these is left out.
OPENED: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "patternProperties": {"additionalProperties": True},
        "prefixItems": {"items": True},
        "properties": {"additionalProperties": True},
    }
)
# Without these a keyword means something else, or there is nothing that it can be wrong with.
FIRST = ("type", "properties", "required", "items", "prefixItems")


class TooManyParts(Exception):
    """A schema has too many parts that no grammar can express."""


class Reducer:
    """`can_express` says whether a grammar can express a schema."""

    def __init__(
        self, whole: Schema, can_express: Callable[[Schema], bool], left_out: LeftOut
    ) -> None:
        self._definitions = {name: whole[name] for name in DEFINITIONS if name in whole}
        self._can_express = can_express
        self._left_out = left_out
        self._told: dict[str, bool] = {}  # by what was asked: parts are often alike
        self._n_bytes_asked = 0
        self._is_open = True  # whatever a reference names can be expressed

    def reduce(self, schema: Schema) -> Schema:
        """Raises TooManyParts."""
        self._reduce_definitions()
        self._is_open = False
        if not self._is_expressible({**schema, **self._definitions}):
            self._reduce_definitions()
        return self._node({**schema, **self._definitions}, "", self._is_expressible)

    def _reduce_definitions(self) -> None:
        for group, named in self._definitions.items():
            parts = named.items() if isinstance(named, Mapping) else ()
            reduced = {key: self._part(part, f"{group}.{key}") for key, part in parts}
            self._definitions = {**self._definitions, group: reduced}

    def _is_expressible(self, schema: Schema) -> bool:
        text = json.dumps(schema)
        if text not in self._told:
            self._n_bytes_asked += len(text)
            if len(self._told) >= MAX_ASKED or self._n_bytes_asked > MAX_BYTES_ASKED:
                raise TooManyParts
            self._told[text] = self._can_express(schema)
        return self._told[text]

    def _is_part_expressible(self, part: Schema) -> bool:
        """The same where a value of it must be, and where references may name all."""
        around = {"type": "object", "properties": {"x": part}, "required": ["x"]}
        return self._is_expressible({**around, **needed_definitions(part, self._known())})

    def _known(self) -> dict[str, object]:
        if not self._is_open:
            return self._definitions
        return {
            group: dict.fromkeys(named, True)
            for group, named in self._definitions.items()
            if isinstance(named, Mapping)
        }

    def _part(self, part: object, path: str) -> object:
        if isinstance(part, list):
            return [self._part(each, f"{path}[{i}]") for i, each in enumerate(part)]
        if not isinstance(part, Mapping):
            return part
        return self._node(part, path, self._is_part_expressible)

    def _node(self, part: Schema, path: str, is_expressible: Callable[[Schema], bool]) -> Schema:
        if is_expressible(part):
            return part
        part = {
            name: self._inner(name, value, f"{path}.{name}" if path else name)
            for name, value in part.items()
        }
        if is_expressible(part):
            return part
        plain = without_inexact_bounds(part)
        if plain is not part and is_expressible(plain):
            self._left_out(f"{path or 'all of it'}: the bounds beyond 2**53 within")
            return plain
        return self._without_keywords(part, path, is_expressible)

    def _inner(self, name: str, value: object, path: str) -> object:
        if name in DEFINITIONS:
            return value
        if name in NAMED_SCHEMAS and isinstance(value, Mapping):
            return {key: self._part(each, f"{path}.{key}") for key, each in value.items()}
        return self._part(value, path) if name in SCHEMAS else value

    def _without_keywords(
        self, part: Schema, path: str, is_expressible: Callable[[Schema], bool]
    ) -> Schema:
        """Keeps as many keywords as it can. A `oneOf` that can't be kept becomes `anyOf`."""
        names = sorted(part, key=lambda name: (name not in DEFINITIONS, *_rank(name)))
        kept: dict[str, object] = {}
        for name in names:
            if name in kept:
                continue
            if is_expressible(more := {**kept, name: part[name]}):
                kept = more
                continue
            self._left_out(f"{path}.{name}" if path else name)
            if name == "oneOf" and is_expressible(more := {**kept, "anyOf": part[name]}):
                kept = more
            elif name in OPENED:
                kept |= {**self._entries(name, part[name], kept, is_expressible), **OPENED[name]}
        return {name: kept[name] for name in [*part, "anyOf", *kept] if name in kept}

    def _entries(
        self, name: str, value: object, kept: Schema, is_expressible: Callable[[Schema], bool]
    ) -> dict[str, object]:
        """Keeps the named schemas of a keyword that can be expressed."""
        if not isinstance(value, Mapping) or len(value) > MAX_TRIED:
            return {}
        expressed: dict[str, object] = {}
        for key, each in value.items():
            if is_expressible({**kept, name: {**expressed, key: each}}):
                expressed[key] = each
        return {name: expressed} if expressed else {}


def _rank(name: str) -> tuple[bool, bool]:
    """Ranks a keyword: one for the other items or properties comes after those for certain ones."""
    return name not in FIRST, name in ("items", "unevaluatedItems", "unevaluatedProperties")

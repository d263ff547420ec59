"""Finds the part of a JSON Schema that a grammar can express: the smallest parts that none can
express are left out.

Whether one can is for `holds` to say. How often it is asked, and how much, is bounded.
"""

import json
from collections.abc import Callable, Mapping

from deployments.text.grammar.schemas.json_schema import DEFINITIONS, NAMED_SCHEMAS, SCHEMAS
from deployments.text.grammar.schemas.references import references_in
from deployments.text.grammar.schemas.wellformed import LeftOut

Schema = Mapping[str, object]

MAX_ASKED = 300
MAX_BYTES_ASKED = 4 << 20
# Without these a keyword means something else, or there is nothing that it can be wrong with.
FIRST = ("type", "properties", "required", "items", "prefixItems")


class TooManyParts(Exception):
    """A schema has too many parts that no grammar can express."""


class Reducer:
    """`holds` says whether a grammar can express a schema."""

    def __init__(self, whole: Schema, holds: Callable[[Schema], bool], left_out: LeftOut) -> None:
        self._definitions = {name: whole[name] for name in DEFINITIONS if name in whole}
        self._holds = holds
        self._left_out = left_out
        self._n_asked = self._n_bytes_asked = 0
        self._is_open = True  # whatever a reference names holds

    def reduce(self, schema: Schema) -> Schema:
        """Raises TooManyParts."""
        self._reduce_definitions()
        self._is_open = False
        if not self._is_held({**schema, **self._definitions}):
            self._reduce_definitions()
        return self._node({**schema, **self._definitions}, "", self._is_held)

    def _reduce_definitions(self) -> None:
        for group, named in self._definitions.items():
            parts = named.items() if isinstance(named, Mapping) else ()
            reduced = {key: self._part(part, f"{group}.{key}") for key, part in parts}
            self._definitions = {**self._definitions, group: reduced}

    def _is_held(self, schema: Schema) -> bool:
        self._n_asked += 1
        self._n_bytes_asked += len(json.dumps(schema))
        if self._n_asked > MAX_ASKED or self._n_bytes_asked > MAX_BYTES_ASKED:
            raise TooManyParts
        return self._holds(schema)

    def _is_part_held(self, part: Schema) -> bool:
        """`_is_held`, in a place where a value of it must be, and where references may name all."""
        around = {"type": "object", "properties": {"x": part}, "required": ["x"]}
        return self._is_held({**around, **self._needed_by(part)})

    def _needed_by(self, part: Schema) -> dict[str, object]:
        """The definitions that the part refers to, and those that these refer to."""
        needed: dict[str, dict[str, object]] = {}
        waiting: list[object] = [part]
        while waiting:
            for pointer in references_in(waiting.pop()):
                _, _, path = pointer.partition("#/")
                group, _, name = path.partition("/")
                named = self._definitions.get(group)
                if not isinstance(named, Mapping) or name not in named:
                    continue
                known = needed.setdefault(group, {})
                if name not in known:
                    known[name] = True if self._is_open else named[name]
                    waiting.append(known[name])
        return dict(needed)

    def _part(self, part: object, path: str) -> object:
        if isinstance(part, list):
            return [self._part(each, f"{path}[{i}]") for i, each in enumerate(part)]
        if not isinstance(part, Mapping):
            return part
        return self._node(part, path, self._is_part_held)

    def _node(self, part: Schema, path: str, holds: Callable[[Schema], bool]) -> Schema:
        if holds(part):
            return part
        part = {
            name: self._inner(name, value, f"{path}.{name}" if path else name)
            for name, value in part.items()
        }
        return part if holds(part) else self._without_keywords(part, path, holds)

    def _inner(self, name: str, value: object, path: str) -> object:
        if name in DEFINITIONS:
            return value
        if name in NAMED_SCHEMAS and isinstance(value, Mapping):
            return {key: self._part(each, f"{path}.{key}") for key, each in value.items()}
        return self._part(value, path) if name in SCHEMAS else value

    def _without_keywords(self, part: Schema, path: str, holds: Callable[[Schema], bool]) -> Schema:
        """Keeps as many keywords as hold together. A `oneOf` that does not becomes `anyOf`."""
        names = sorted(part, key=lambda name: (name not in DEFINITIONS, name not in FIRST))
        kept: dict[str, object] = {}
        for name in names:
            if holds(more := {**kept, name: part[name]}):
                kept = more
                continue
            self._left_out(f"{path}.{name}" if path else name)
            if name == "oneOf" and holds(more := {**kept, "anyOf": part[name]}):
                kept = more
        return {name: kept[name] for name in [*part, "anyOf"] if name in kept}

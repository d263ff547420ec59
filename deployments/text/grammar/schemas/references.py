"""Resolves the references of a JSON Schema within it. Behind this each is a plain JSON Pointer.

Clients write names with spaces, umlauts and brackets, percent-encoded or not, anchors, and `$id`s.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from deployments.text.grammar.schemas.json_schema import DATA, DEFINITIONS, NAMED_SCHEMAS

Schema = Mapping[str, object]
Unresolved = Callable[[str], object]  # takes what is wrong; unless it raises, it is left out

PLAIN = re.compile(r"[\w.-]+", re.ASCII)
ANCHORS = ("$anchor", "$dynamicAnchor")
# Of schemas, which only references read. In draft 4 `id` is what `$id` is now.
NAMES = frozenset({*ANCHORS, "$id", "id"})
SAME_VALUE = ("allOf", "anyOf", "oneOf")


class Subschema(NamedTuple):
    """A schema and the address that its references are relative to."""

    schema: object
    base: str


def with_plain_references(schema: Schema, unresolved: Unresolved) -> Schema:
    """Raises RecursionError for a schema that is too deep."""
    return _Resolver(schema, unresolved).resolve()


def pointed_at(whole: object, pointer: str) -> object:
    """Returns what a JSON Pointer names, also percent-encoded, and where the name of a definition
    has a slash that is not escaped. Raises LookupError.
    """
    for names in _readings(pointer):
        try:
            return _walk(whole, names)
        except LookupError:
            continue
    raise LookupError(pointer)


def _readings(pointer: str) -> Iterator[list[str]]:
    """The names that the pointer may mean, the likeliest first."""
    decoded = unquote(pointer)
    yield decoded.split("/")[1:]
    yield pointer.split("/")[1:]
    yield [unquote(name) for name in pointer.split("/")[1:]]
    for text in (decoded, pointer):
        yield text.split("/", 2)[1:]


def _walk(whole: object, names: Sequence[str]) -> object:
    found = whole
    for name in names:
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, Mapping) and key in found:
            found = found[key]
        else:
            raise LookupError(name)
    return found


def _parts(schema: object) -> Iterator[object]:
    """Yields what may hold schemas, also under names that are no keywords."""
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, Mapping):
        for name, value in schema.items():
            if name in NAMED_SCHEMAS and isinstance(value, Mapping):
                yield from value.values()
            elif name not in DATA:
                yield value


def _plain_definitions(schema: Schema) -> Iterator[tuple[int, str]]:
    """The ids of the definitions that llguidance finds by their names, and their pointers."""
    for group in DEFINITIONS:
        named = schema.get(group)
        for name, part in named.items() if isinstance(named, Mapping) else ():
            if PLAIN.fullmatch(name):
                yield id(part), f"#/{group}/{name}"


def references_in(schema: object) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
            yield str(part["$ref"])
        waiting.extend(_parts(part))


def needed_definitions(
    part: object, definitions: Mapping[str, object]
) -> dict[str, dict[str, object]]:
    """The definitions, by their groups, that plain references of a part lead to."""
    needed: dict[str, dict[str, object]] = {}
    waiting = [part]
    while waiting:
        for pointer in references_in(waiting.pop()):
            group, _, name = pointer.removeprefix("#/").partition("/")
            named = definitions.get(group)
            if not isinstance(named, Mapping) or name not in named:
                continue
            known = needed.setdefault(group, {})
            if name not in known:
                known[name] = named[name]
                waiting.append(known[name])
    return needed


class _Resolver:
    def __init__(self, schema: Schema, unresolved: Unresolved) -> None:
        self._schema = schema
        self._unresolved = unresolved
        self._named: dict[str, Subschema] = {}  # by address, with the anchor if it has one
        self._bases: dict[int, str] = {}  # by the id of a part
        self._name(schema, "")
        self._plain = dict(_plain_definitions(schema))
        self._moved: dict[int, tuple[str, object]] = {}  # their new names, by the id of a part
        self._open: set[int] = set()  # parts whose value is being followed
        self._sound: set[int] = set()

    def resolve(self) -> Schema:
        resolved = self._written(self._schema)
        assert isinstance(resolved, dict)
        definitions: dict[str, object] = {}
        while len(definitions) < len(self._moved):
            for name, part in [*self._moved.values()][len(definitions) :]:
                definitions[name] = self._written(part)
        if definitions:
            resolved |= {group: self._kept(group) for group in DEFINITIONS if group in resolved}
            resolved["$defs"] = {**self._kept("$defs"), **definitions}
        return resolved

    def _kept(self, group: str) -> dict[str, object]:
        """The definitions that have their own names still."""
        named = self._schema.get(group)
        parts = named.items() if isinstance(named, Mapping) else ()
        return {name: self._written(part) for name, part in parts if id(part) not in self._moved}

    def _name(self, part: object, base: str) -> None:
        if isinstance(part, Mapping):
            own = part.get("$id", part.get("id"))
            if isinstance(own, str):
                address = urljoin(base, own)
                base = address if own.startswith("#") else urldefrag(address).url
                self._named.setdefault(address.removesuffix("#"), Subschema(part, base))
            for anchor in map(part.get, ANCHORS):
                if isinstance(anchor, str):
                    self._named.setdefault(f"{base}#{anchor}", Subschema(part, base))
            self._bases[id(part)] = base
        for inner in _parts(part):
            self._name(inner, base)

    def _written(self, part: object) -> object:
        """A part with its references as plain pointers."""
        if isinstance(part, list):
            return [self._written(inner) for inner in part]
        if not isinstance(part, Mapping):
            return part
        written: dict[str, object] = {}
        for name, value in part.items():
            if name in NAMED_SCHEMAS and isinstance(value, Mapping):
                written[name] = {key: self._written(inner) for key, inner in value.items()}
            elif name == "$ref" and isinstance(value, str):
                pointer = self._pointer(value, part)
                if pointer is not None:
                    written[name] = pointer
            elif not (name in NAMES and isinstance(value, str)):
                written[name] = value if name in DATA else self._written(value)
        return written

    def _pointer(self, reference: str, part: Schema) -> str | None:
        """Returns None where nothing is there, and `unresolved` was told."""
        try:
            target = self._target(reference, part)
        except LookupError:
            self._unresolved(_missing(reference))
            return None
        if self._leads_back(part):
            self._unresolved(f"`$ref` {json.dumps(reference)} leads back to itself")
            return None
        if target is self._schema:
            return "#"
        if id(target) in self._plain:
            return self._plain[id(target)]
        if id(target) not in self._moved:
            self._moved[id(target)] = (self._free_name(), target)
        return f"#/$defs/{self._moved[id(target)][0]}"

    def _free_name(self) -> str:
        known = self._schema.get("$defs")
        number = len(self._moved)
        while isinstance(known, Mapping) and f"d{number}" in known:
            number += len(known) + 1
        return f"d{number}"

    def _target(self, reference: str, part: Schema) -> object:
        """Raises LookupError."""
        base = self._bases.get(id(part), "")
        address, fragment = urldefrag(urljoin(base, reference))
        if reference.startswith("#"):
            address, fragment = base, reference[1:]
        root = self._named[address].schema if address else self._schema
        if not fragment or fragment == "/":
            return root
        if not fragment.startswith("/"):
            return self._named[f"{address}#{unquote(fragment)}"].schema
        try:
            return pointed_at(root, fragment)
        except LookupError:
            return pointed_at(self._schema, fragment)

    def _leads_back(self, part: object) -> bool:
        """Whether a value of the part has to be one of the part in the first place."""
        if not isinstance(part, Mapping) or id(part) in self._sound:
            return False
        if id(part) in self._open:
            return True
        self._open.add(id(part))
        leads = any(map(self._leads_back, self._same_value(part)))
        self._open.discard(id(part))
        if not leads:
            self._sound.add(id(part))
        return leads

    def _same_value(self, part: Schema) -> Iterator[object]:
        for name in SAME_VALUE:
            several = part.get(name)
            yield from several if isinstance(several, list) else ()
        reference = part.get("$ref")
        if isinstance(reference, str):
            try:
                yield self._target(reference, part)
            except LookupError:
                return


def _missing(reference: str) -> str:
    if reference.startswith("#"):
        return f"`$ref` names {json.dumps(reference)}, which is not in the schema"
    return f"{json.dumps(reference)} is not in the schema, and schemas from elsewhere are not read"

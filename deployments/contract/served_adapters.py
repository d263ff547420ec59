"""The LoRA adapters that requests of a model choose from, and what a model's name asks for.

Free of torch and of Ray: routers say it, ingresses read it. Names mean the same in both.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from kv.content import Adapter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")  # without ":", which ends a model's name
NAME_WORDS = "1 to 128 letters of ASCII, digits, `.`, `_`, `/` or `-`, the first a letter or digit"
SEPARATOR = ":"  # of a model's name and an adapter's
MAX_SCALE = 100.0  # either way
MAX_CHOSEN = 16  # adapters of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAdapter:
    """id: as llama-server's clients name it, among the adapters of its model.
    path, digest: as `kv.content.Adapter` says.
    scale: for requests that name it.
    default_scale: for requests that name its model alone, and choose nothing.
    is_loaded: at run time, by a client, and not by a preset.
    """

    id: int
    name: str
    path: str
    digest: bytes
    rank: int
    scale: float = 1.0
    default_scale: float = 0.0
    is_loaded: bool = False

    def scaled(self, scale: float) -> Adapter:
        """Returns the adapter as a part of a request's content, with another scale."""
        return Adapter(self.path, self.digest, scale, self.name)


@dataclass(frozen=True, slots=True)
class AdapterTable:
    """All adapters of a model, by their ids. `version` changes with any of them; "" without any."""

    adapters: tuple[ServedAdapter, ...] = ()
    version: str = ""

    @classmethod
    def from_adapters(cls, adapters: Iterable[ServedAdapter]) -> "AdapterTable":
        """Returns a table in the order of the ids, with a version that says what is in it."""
        listed = tuple(sorted(adapters, key=lambda adapter: adapter.id))
        digest = blake2b(repr(listed).encode(), digest_size=8).hexdigest()
        return cls(listed, digest if listed else "")


NO_ADAPTERS = AdapterTable()
Scales = Sequence[tuple[ServedAdapter, float]]


def named_adapter(
    asked: str | None, names: Collection[str], adapters: Iterable[ServedAdapter]
) -> ServedAdapter | None:
    """The adapter that a request's `model` names, as ADAPTER or MODEL:ADAPTER. `names` are those of
    the model that has the adapters; they, and None, name the model alone.
    """
    if asked is None or asked in names:
        return None
    model, separator, name = asked.rpartition(SEPARATOR)
    if separator and model not in names:
        return None
    return next((adapter for adapter in adapters if adapter.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAdapters:
    """The adapters of a request: those of its model, and the one that its `model` names.

    asked: its `model`. names: the model's own.
    """

    asked: str | None = None
    names: tuple[str, ...] = ()
    table: AdapterTable = NO_ADAPTERS

    @property
    def named(self) -> ServedAdapter | None:
        return named_adapter(self.asked, self.names, self.table.adapters)

    @property
    def implied(self) -> Scales:
        """The adapters and scales of a request that chooses nothing beside its `model`."""
        if (named := self.named) is not None:
            return [(named, named.scale)] if named.scale else []
        return [
            (adapter, adapter.default_scale)
            for adapter in self.table.adapters
            if adapter.default_scale
        ]

    def means_the_same(self, table: AdapterTable, used: Iterable[Adapter]) -> bool:
        """Whether a request that uses these adapters would get them of this table, too."""
        later = replace(self, table=table)
        if (self.named is None) != (later.named is None):
            return False
        if contents(self.implied) != contents(later.implied):
            return False
        digests = {adapter.digest for adapter in table.adapters}
        return all(adapter.digest in digests for adapter in used)


PLAIN_MODEL = AskedAdapters()  # without adapters


def contents(scales: Scales) -> tuple[Adapter, ...]:
    """Returns the adapters as a part of a request's content, in the same order."""
    return tuple(adapter.scaled(scale) for adapter, scale in scales)

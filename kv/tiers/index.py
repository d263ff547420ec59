"""Accounts for the bundles of a folder: which pages they hold, and which of them goes first.

The owner with the most bytes loses its least recently used bundle, the end of a chain before its
beginning. So who writes much pushes out nobody else.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kv.arrivals import PageKey
from kv.tiers.bundle import NO_PARENT, BundleHeader, Record


@dataclass(eq=False, slots=True)
class Bundle:
    """A file. header: None for one of another namespace, whose pages are of no use here.

    name: of the file, with its folder. used: when it was used last, in seconds.
    """

    name: str
    owner: str
    n_bytes: int
    used: float
    header: BundleHeader | None = None

    @property
    def order(self) -> tuple[float, int]:
        """The lowest goes first."""
        return self.used, -self.header.first_page if self.header else 0


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Says where a page is."""

    bundle: Bundle
    record: Record


@dataclass
class BundleIndex:
    """Several threads may look up; the caller sees to it that one at a time changes something."""

    n_bytes: int = 0
    _bundles: dict[str, Bundle] = field(default_factory=dict)  # by name
    _places: dict[PageKey, PagePlace] = field(default_factory=dict)
    _others: dict[PageKey, list[PagePlace]] = field(default_factory=dict)  # of pages that are twice
    _by_owner: dict[str, int] = field(default_factory=dict)  # bytes

    def __len__(self) -> int:
        """Pages that can be looked up."""
        return len(self._places)

    def __iter__(self) -> Iterator[Bundle]:
        return iter([*self._bundles.values()])

    def __contains__(self, key: PageKey) -> bool:
        return key in self._places

    def get(self, name: str) -> Bundle | None:
        """The bundle of this name."""
        return self._bundles.get(name)

    def lookup(self, key: PageKey) -> PagePlace | None:
        """Returns where a page is, if it is anywhere."""
        return self._places.get(key)

    def add(self, bundle: Bundle) -> None:
        """Adds a bundle, in the place of one with its name. A page stays where it was found
        first."""
        if (before := self._bundles.get(bundle.name)) is not None:
            self.remove(before)
        self._bundles[bundle.name] = bundle
        self._count(bundle, bundle.n_bytes)
        for record in bundle.header.records if bundle.header else ():
            place = PagePlace(bundle, record)
            if self._places.setdefault(record.key, place) is not place:
                self._others.setdefault(record.key, []).append(place)

    def remove(self, bundle: Bundle) -> None:
        """Removes a bundle; does nothing where it is gone."""
        if self._bundles.get(bundle.name) is not bundle:
            return
        del self._bundles[bundle.name]
        self._count(bundle, -bundle.n_bytes)
        for record in bundle.header.records if bundle.header else ():
            key = record.key
            others = [place for place in self._others.pop(key, ()) if place.bundle is not bundle]
            if self._places[key].bundle is bundle:
                del self._places[key]
                if others:
                    self._places[key] = others.pop(0)
            if others:
                self._others[key] = others

    def touch(self, bundle: Bundle, now: float) -> list[Bundle]:
        """Notes that a bundle is used, with those before it in its chain; returns them all."""
        touched: list[Bundle] = []
        while bundle.header is not None and bundle not in touched:
            bundle.used = now
            touched.append(bundle)
            parent = bundle.header.parent
            place = None if parent == NO_PARENT else self.lookup(PageKey(parent))
            if place is None:
                break
            bundle = place.bundle
        return touched

    def to_evict(self, max_bytes: int) -> list[Bundle]:
        """The bundles that have to go so that the others have `max_bytes` at most, first ones
        first."""
        left, n_bytes = {**self._by_owner}, self.n_bytes
        queues: dict[str, list[tuple[tuple[float, int], str]]] = {}
        found: list[Bundle] = []
        while n_bytes > max_bytes:
            owner = max(left, key=left.__getitem__)
            if owner not in queues:
                queues[owner] = [(b.order, b.name) for b in self if b.owner == owner]
                heapq.heapify(queues[owner])
            bundle = self._bundles[heapq.heappop(queues[owner])[1]]
            found.append(bundle)
            left[owner] -= bundle.n_bytes
            n_bytes -= bundle.n_bytes
        return found

    def with_pages(self, hashes: Iterable[bytes]) -> list[Bundle]:
        """All bundles that hold a page with one of these hashes."""
        gone = {*hashes}
        return [
            bundle
            for bundle in self
            if bundle.header and not gone.isdisjoint(r.key.page_hash for r in bundle.header.records)
        ]

    def check(self) -> None:
        """Asserts that bytes and places agree with the bundles."""
        assert self.n_bytes == sum(bundle.n_bytes for bundle in self)
        owners = {bundle.owner for bundle in self}
        assert self._by_owner == {
            owner: sum(bundle.n_bytes for bundle in self if bundle.owner == owner)
            for owner in owners
        }
        for key, place in self._places.items():
            assert place.record.key == key
            assert self._bundles[place.bundle.name] is place.bundle, "a page of no bundle"
        records = [record for b in self if b.header for record in b.header.records]
        assert {record.key for record in records} == self._places.keys()
        assert len(records) == len(self) + sum(map(len, self._others.values()))

    def _count(self, bundle: Bundle, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self._by_owner[bundle.owner] = self._by_owner.get(bundle.owner, 0) + n_bytes
        if not self._by_owner[bundle.owner]:
            del self._by_owner[bundle.owner]

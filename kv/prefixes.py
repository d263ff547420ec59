"""Finds how much of a sequence can be hit, by what is cached or by what a tier holds besides."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kv.arrivals import PageKey
from kv.hit_rule import HitRule
from kv.layout import Group
from kv.tiers.tier import Tier


class KnownPages(Protocol):
    """Pages that can be found, in each group of layers."""

    def lookup(self, page_hash: bytes, group: int = 0) -> object | None:
        """None for a page that is not known."""
        ...

    def match(self, hashes: Iterable[bytes], group: int = 0) -> Sequence[object]:
        """One entry for each page of the longest known prefix."""
        ...


class Lacking(NamedTuple):
    """How many leading pages of a sequence can be hit; how many could be, if a tier brought what is
    not cached of them; and what that is."""

    n_cached: int
    n: int
    keys: list[PageKey]


class OverTier:
    """Pages that are cached or that a tier holds."""

    def __init__(self, cached: KnownPages, tier: Tier) -> None:
        self._cached, self._tier = cached, tier

    def lookup(self, page_hash: bytes, group: int = 0) -> object | None:
        """Finds a page, as `KnownPages` says."""
        if (page := self._cached.lookup(page_hash, group)) is not None:
            return page
        return True if self._tier.holds(PageKey(page_hash, group)) else None

    def match(self, hashes: Iterable[bytes], group: int = 0) -> Sequence[object]:
        """Finds a prefix, as `KnownPages` says."""
        found = []
        for page_hash in hashes:
            if (page := self.lookup(page_hash, group)) is None:
                break
            found.append(page)
        return found


class PrefixFinder:
    """The most leading pages that all groups can serve: each has those that the next token needs,
    and there is a state behind the last one where layers keep one."""

    def __init__(self, groups: Sequence[Group], page_size: int, known: KnownPages) -> None:
        self._groups, self._page_size, self._known = groups, page_size, known

    @property
    def n_groups(self) -> int:
        """Groups of layers."""
        return len(self._groups)

    def longest(self, hashes: Sequence[bytes], hits: HitRule) -> int:
        """How many of these pages can be hit."""
        n = len(hashes)
        for number, group in enumerate(self._groups):
            if group.window is None:
                n = min(n, len(self._known.match(hashes[:n], number)))
        return self.last(hashes, n, hits)

    def last(self, hashes: Sequence[bytes], n: int, hits: HitRule) -> int:
        """The same of the first `n` pages. Groups without a window have all pages before one that
        they have: the last page of a prefix goes first."""
        while n and (missing := self._missing_at(hashes, n, hits)) is not None:
            n = missing
        return n

    def first_needed(self, group: Group, n: int) -> int:
        """The first of `n` pages that the next token needs of a group."""
        return group.first_needed(n * self._page_size) // self._page_size

    def needed(self, hashes: Sequence[bytes]) -> list[PageKey]:
        """Returns what a hit of all these pages needs, first tokens first."""
        n = len(hashes)
        firsts = [self.first_needed(group, n) for group in self._groups]
        return [
            PageKey(page_hash, number)
            for index, page_hash in enumerate(hashes)
            for number, first in enumerate(firsts)
            if index >= first
        ]

    def lacking(self, hashes: Sequence[bytes], cached: KnownPages) -> list[PageKey]:
        """Returns what a hit of all these pages needs and is not cached, first tokens first."""
        return [key for key in self.needed(hashes) if cached.lookup(*key) is None]

    def _missing_at(self, hashes: Sequence[bytes], n: int, hits: HitRule) -> int | None:
        """None if `n` pages can be served. Else the most that may be, with what is missing now."""
        if (longest := hits.longest(hashes[:n])) < n:
            return longest
        for number, group in enumerate(self._groups):
            first = n - 1 if group.window is None else self.first_needed(group, n)
            for index in range(n - 1, first - 1, -1):
                if self._known.lookup(hashes[index], number) is None:
                    return index
        return None

"""Finds pages by what they hold: in each group, hash -> page, one page a hash, one hash a page.

Its journal publishes what can be found here in the first group, unless that alone is no hit.
"""

from collections.abc import Iterable

from kv.journal import Journal


class PrefixCache:
    """Hashes and pages of the content that can be found, in `n_groups` groups of layers."""

    def __init__(self, n_groups: int = 1, *, publishes_pages: bool = True) -> None:
        """`publishes_pages`: whether it writes the journal."""
        self.journal = Journal()
        self._publishes_pages = publishes_pages
        self._pages: list[dict[bytes, int]] = [{} for _ in range(n_groups)]
        self._keys: dict[int, tuple[int, bytes]] = {}  # by page: its group and hash

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, page: int) -> bool:
        return page in self._keys

    def lookup(self, page_hash: bytes, group: int = 0) -> int | None:
        """The group's page with this hash, or None."""
        return self._pages[group].get(page_hash)

    def match(self, hashes: Iterable[bytes], group: int = 0) -> list[int]:
        """The group's pages of the longest known prefix of `hashes`."""
        known, pages = self._pages[group], []
        for page_hash in hashes:
            page = known.get(page_hash)
            if page is None:
                break
            pages.append(page)
        return pages

    def insert(self, page_hash: bytes, page: int, group: int = 0) -> None:
        """Makes a page findable. Asserts that neither hash nor page is known."""
        assert page_hash not in self._pages[group], "two pages under one hash"
        assert page not in self._keys, f"page {page} under two hashes"
        self._pages[group][page_hash] = page
        self._keys[page] = group, page_hash
        if group == 0 and self._publishes_pages:
            self.journal.stored(page_hash)

    def remove(self, page: int) -> bytes:
        """Makes a page unfindable; returns its hash. KeyError if it is so already."""
        group, page_hash = self._keys.pop(page)
        del self._pages[group][page_hash]
        if group == 0 and self._publishes_pages:
            self.journal.evicted(page_hash)
        return page_hash

    def check(self) -> None:
        """Asserts that hashes and pages map to each other."""
        by_page = {
            page: (group, page_hash)
            for group, pages in enumerate(self._pages)
            for page_hash, page in pages.items()
        }
        assert by_page == self._keys
        assert len(by_page) == sum(map(len, self._pages)), "a page has two hashes"

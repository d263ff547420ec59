"""Finds pages by what they hold: hash -> page, one page a hash, one hash a page.

Its journal tells others what can be found here.
"""

from collections.abc import Iterable

from kv.journal import Journal


class PrefixCache:
    """Hashes and pages of the content that can be found."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._pages: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: int) -> bool:
        return page in self._hashes

    def lookup(self, page_hash: bytes) -> int | None:
        """The page with this hash, or None."""
        return self._pages.get(page_hash)

    def match(self, hashes: Iterable[bytes]) -> list[int]:
        """Pages of the longest known prefix of `hashes`."""
        pages = []
        for page_hash in hashes:
            page = self._pages.get(page_hash)
            if page is None:
                break
            pages.append(page)
        return pages

    def insert(self, page_hash: bytes, page: int) -> None:
        """Makes a page findable. Asserts that neither hash nor page is known."""
        assert page_hash not in self._pages, "two pages under one hash"
        assert page not in self._hashes, f"page {page} under two hashes"
        self._pages[page_hash] = page
        self._hashes[page] = page_hash
        self.journal.stored(page_hash)

    def remove(self, page: int) -> None:
        """Makes a page unfindable. KeyError if it is so already."""
        page_hash = self._hashes.pop(page)
        del self._pages[page_hash]
        self.journal.evicted(page_hash)

    def check(self) -> None:
        """Asserts that hashes and pages map to each other."""
        assert {page: key for key, page in self._pages.items()} == self._hashes

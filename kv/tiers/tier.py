"""The seam between the cache and slower memory that keeps prefixes longer: a tier."""

from collections.abc import Sequence

from kv.arrivals import PageKey


class Tier:
    """Is told what becomes of tasks and pages, on the cache's thread. By default it keeps none."""

    def holds(self, key: PageKey) -> bool:
        """Whether it could bring a page with this content."""
        return False

    def spares(self, key: PageKey) -> bool:
        """Whether a cached page is rather to be kept than others that were not used as long."""
        return False

    def extend(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        """A task has findable pages with these hashes from `first_page` on."""

    def leave(self, task_id: str) -> None:
        """The task is about to give back its pages: this is when to keep them."""

    def lose(self, key: PageKey) -> None:
        """A page is about to be taken for new content."""

    def forget(self, hashes: Sequence[bytes]) -> None:
        """The content of pages with these hashes can't be trusted, in any group."""

    def check(self) -> None:
        """Asserts that the accounts agree."""

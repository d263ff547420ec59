"""The seam for what makes a prefix a hit, where pages alone don't."""

from collections.abc import Callable, Iterable, Sequence

from kv.arrivals import PageKey


class HitRule:
    """Is told what becomes of tasks and pages. By default every prefix is hit whose pages are
    cached."""

    def longest(self, hashes: Sequence[bytes]) -> int:
        """The most leading ones of some cached pages that can be hit, as far as more than pages
        decides it."""
        return len(hashes)

    def over(self, holds: Callable[[PageKey], bool]) -> "HitRule":
        """The same rule if all were here that a tier `holds`."""
        return self

    def lacking(self, hashes: Sequence[bytes]) -> list[PageKey]:
        """Returns what a hit of all these pages needs besides them and is not here."""
        return []

    def insert(self, task_id: str, hashes: Sequence[bytes] = (), n_tokens: int = 0) -> None:
        """A new task has cached pages with these hashes, which hold its first `n_tokens`."""

    def adopt(self, task_id: str, n_tokens: int, first_page: int, hashes: Sequence[bytes]) -> None:
        """The task has cached pages with these hashes from `first_page` on, and goes on behind
        `n_tokens`."""

    def record(self, task_id: str, n_tokens: int, first_page: int, hashes: Sequence[bytes]) -> None:
        """The task has computed `n_tokens`, which fill pages with these hashes from `first_page`
        on."""

    def settle(self, task_id: str, n_tokens: int) -> None:
        """The task has computed `n_tokens`, and no step for it is in progress."""

    def remove(self, task_id: str) -> None:
        """The task gives back its pages."""

    def forget(self, task_id: str, hashes: Sequence[bytes]) -> None:
        """Nothing can be hit any more at these pages or behind them, which the task has."""

    def lose(self, page_hash: bytes) -> None:
        """A page with this hash is gone, of some group."""

    def check(self, task_ids: Iterable[str]) -> None:
        """Asserts that what is kept can be hit, and that it is kept of these tasks."""

"""The seam for where pages come from that a cache lacks: a tier, or another replica."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kv.arrivals import Arrival, PageKey, PrefixHolder
from kv.tiers.fetches import TierFetch
from kv.tiers.tier import Tier


class PageSource(Protocol):
    """Brings pages on threads of its own. The cache's thread calls all methods. By default nothing
    is written there.

    name: of the tier. is_open: is set once it is known what could be brought. n_read: bytes that
    have come; n_corrupt: pages or files that were not what they should be.
    """

    name: str
    is_open: threading.Event
    n_read: int

    @property
    def n_corrupt(self) -> int: ...

    @property
    def rate(self) -> float:
        """Bytes a second, as measured."""
        ...

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to write."""
        return False

    def start(self, wake: Callable[[], None]) -> None:
        """Begins. `wake` is called, on other threads, when a fetch is done."""

    def holding(self, hashes: Sequence[bytes], holder: PrefixHolder | None) -> Tier | None:
        """Returns what tells which pages of a sequence could be brought; `holder` has the first
        ones of it. None: none of them."""
        ...

    def size_of(self, keys: Sequence[PageKey]) -> int:
        """Bytes of some pages."""
        ...

    def estimate_s(self, n_bytes: int) -> float | None:
        """Seconds in which so many bytes would come; None: nothing is fetched now."""
        ...

    def fetch(self, arrival: Arrival, holder: PrefixHolder | None) -> TierFetch:
        """Begins to bring an arrival's pages. The arrival may end at any time."""
        ...

    def give_up(self, fetch: TierFetch) -> None:
        """Notes that a fetch took too long."""

    def charge(self, task_id: str, owner: str | None, n_prompt: int) -> None:
        """Says whose the pages of a task are, and how many full ones its prompt has; None: they are
        not to be kept."""
        return

    def rescue(self, keys: Sequence[PageKey], until: float) -> None:
        """Copies what is dirty of pages that are about to be taken, up to a time of its clock."""
        return

    def copy(self, max_bytes: int) -> bool:
        """Copies what is to be written, `max_bytes` about. Whether there is more to copy."""
        return False

    def flush(self, seconds: float) -> None:
        """Writes all that is dirty, and waits for it, `seconds` at most."""
        return

    def stats(self) -> Mapping[str, int]:
        """Returns what it alone counts, by name."""
        return {}

    def close(self) -> None:
        """Ends what goes on elsewhere, and waits for none of it."""
        return

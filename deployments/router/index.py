"""Where prefixes were sent: page hash -> replicas, bounded, the least recently used forgotten.

Made from the router's own choices: a replica may have evicted what stands here. It is a hint.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class PrefixIndex:
    def __init__(self, max_pages: int) -> None:
        self._max_pages = max_pages
        self._replicas: OrderedDict[bytes, set[str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def overlap(self, hashes: Iterable[bytes]) -> dict[str, int]:
        """Leading pages that each replica was sent before; replicas with none are left out."""
        overlap: dict[str, int] = {}
        holders: set[str] | None = None
        for count, page_hash in enumerate(hashes, 1):
            known = self._replicas.get(page_hash, set())
            holders = set(known) if holders is None else holders & known
            if not holders:
                break
            overlap.update(dict.fromkeys(holders, count))
        return overlap

    def insert(self, replica_id: str, hashes: Sequence[bytes]) -> None:
        # Last page first, so that a prefix's end is forgotten before its beginning.
        for page_hash in reversed(hashes):
            self._replicas.setdefault(page_hash, set()).add(replica_id)
            self._replicas.move_to_end(page_hash)
        while len(self._replicas) > self._max_pages:
            self._replicas.popitem(last=False)

    def keep_only(self, replica_ids: set[str]) -> None:
        """Forgets replicas that are gone."""
        for page_hash in [h for h, known in self._replicas.items() if known - replica_ids]:
            self._replicas[page_hash] &= replica_ids
            if not self._replicas[page_hash]:
                del self._replicas[page_hash]

"""The prefix index: page hash -> replicas, from their reports and from requests just sent there.

Bounded by sampling: when there is no room, pages whose hash begins with the highest byte are left
out from then on, for all replicas alike. The rest tells a little less exactly how far a prefix
goes, and nothing has to be moved when it is used.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kv.content import DIGEST_BYTES

N_SHARDS = 256  # by a hash's first byte
PREDICTION_TTL_S = 5.0  # a prediction lives for one to two of these, unless a report confirms it
MAX_PREDICTED_PAGES = 65_536
MAX_GROUP_PAGES = 2048  # forgotten together: a large dict is slow to grow and to free

Slots = int  # one bit for each replica
Shard = dict[bytes, Slots]


class PredictionGroup(NamedTuple):
    """Predictions that were made from `began` on, and are forgotten together."""

    began: float
    pages: Shard


class PrefixIndex:
    """At most `max_pages` pages after each report, and a bounded number of predicted ones.

    A replica that publishes a page publishes those before it, too. So the end of its part of a
    prompt is found by bisection.
    """

    def __init__(self, max_pages: int) -> None:
        self._max_pages = max_pages
        self._slots: dict[str, Slots] = {}
        self._clear()

    def _clear(self) -> None:
        self._n_pages = 0
        self._n_sampled = N_SHARDS  # shards in use
        self._shards: list[Shard] = [{} for _ in range(N_SHARDS)]
        self._predicted: list[PredictionGroup] = []  # oldest first
        self._live: Slots = 0
        self._storing: Slots = 0  # of those, the replicas that have stored pages
        self._gone: Slots = 0  # of replicas that are gone and still in shards
        self._sweeping: Slots = 0  # of those, the replicas that are being swept out
        self._sweep_at = N_SHARDS

    def __len__(self) -> int:
        return self._n_pages

    def overlap(self, hashes: Sequence[bytes], *, reported: bool = False) -> dict[str, int]:
        """Number of leading pages that each replica holds or soon will; none for 0. With `reported`
        only those that it has said to hold."""
        lengths: Sequence[int] = range(1, len(hashes) + 1)
        if self._n_sampled < N_SHARDS:
            lengths = [n for n in lengths if hashes[n - 1][0] < self._n_sampled]
        pages = {
            slot: length
            for length, slots in self._longest_prefixes(hashes, lengths, reported)
            for slot in _single_slots(slots)
        }
        return {name: pages[slot] for name, slot in self._slots.items() if slot in pages}

    def store(self, replica_id: str, hashes: bytes) -> None:
        slot = self._slot(replica_id)
        shards, n_sampled, n_new = self._shards, self._n_sampled, 0
        for page_hash in _split_hashes(hashes):
            if page_hash[0] < n_sampled:
                shard = shards[page_hash[0]]
                slots = shard.get(page_hash)
                n_new += slots is None
                shard[page_hash] = slot if slots is None else slots | slot
        self._n_pages += n_new
        self._storing |= slot
        self._make_room()

    def evict(self, replica_id: str, hashes: bytes) -> None:
        others = ~self._slot(replica_id)
        for page_hash in _split_hashes(hashes):
            shard = self._shards[page_hash[0]]
            if slots := shard.pop(page_hash, 0) & others:
                shard[page_hash] = slots
        self._n_pages = sum(map(len, self._shards))

    def predict(self, replica_id: str, hashes: Iterable[bytes], now: float) -> None:
        """The replica will hold these pages, unless the request ends before."""
        n_sampled = self._n_sampled
        if n_sampled < N_SHARDS:
            hashes = [page_hash for page_hash in hashes if page_hash[0] < n_sampled]
        pages = dict.fromkeys(hashes, self._slot(replica_id))
        current = self._prediction_group(now)
        for page_hash in current.keys() & pages.keys():
            pages[page_hash] |= current[page_hash]
        current.update(pages)

    def expire(self, now: float) -> None:
        """Forgets predictions that are too old, and the oldest when there are too many."""
        made = self._predicted
        while made and now - made[0].began >= 2 * PREDICTION_TTL_S:
            del made[0]
        if len(made) > 1 and sum(len(group.pages) for group in made) > MAX_PREDICTED_PAGES:
            del made[0]

    def _prediction_group(self, now: float) -> Shard:
        """The group of predictions that are made now."""
        last = self._predicted[-1] if self._predicted else None
        if (
            last is None
            or now - last.began >= PREDICTION_TTL_S
            or len(last.pages) >= MAX_GROUP_PAGES
        ):
            last = PredictionGroup(now, {})
            self._predicted.append(last)
        return last.pages

    def restart(self, replica_id: str) -> None:
        """Forgets the pages of a replica. If it has stored none, its predictions stay."""
        if self._slots.get(replica_id, 0) & self._storing:
            self.forget(replica_id)

    def forget(self, replica_id: str) -> None:
        """The replica is no longer found; `sweep` removes its pages later."""
        slot = self._slots.pop(replica_id, 0)
        self._live &= ~slot
        self._storing &= ~slot
        self._gone |= slot
        if not self._slots:
            self._clear()

    def sweep(self) -> None:
        """Removes replicas that are gone from one shard, if they are in one."""
        if self._sweep_at == N_SHARDS:
            self._begin_sweep()
        if self._sweeping:
            shard = self._shards[self._sweep_at]
            self._shards[self._sweep_at] = kept = _without(self._sweeping, shard)
            self._n_pages -= len(shard) - len(kept)
            self._sweep_at += 1

    def _begin_sweep(self) -> None:
        """Frees the slots of the last sweep, and starts with those gone since."""
        if self._sweeping:
            self._predicted = [
                PredictionGroup(group.began, _without(self._sweeping, group.pages))
                for group in self._predicted
            ]
        self._gone &= ~self._sweeping
        self._sweeping = self._gone
        self._sweep_at = 0 if self._gone else N_SHARDS

    def _slot(self, replica_id: str) -> Slots:
        slot = self._slots.get(replica_id)
        if slot is None:
            taken = self._live | self._gone
            slot = self._slots[replica_id] = ~taken & (taken + 1)
            self._live |= slot
        return slot

    def _slots_with(self, page_hash: bytes, predicted: Iterable[Shard]) -> Slots:
        slots = self._shards[page_hash[0]].get(page_hash, 0)
        for pages in predicted:
            if page_hash in pages:
                slots |= pages[page_hash]
        return slots

    def _longest_prefixes(
        self, hashes: Sequence[bytes], lengths: Sequence[int], reported: bool
    ) -> Iterator[tuple[int, Slots]]:
        """The lengths that are the longest prefix of some replicas, with these replicas."""
        # (index in `lengths`, slots that have all up to it) at the low and the high end of a span
        spans = [(-1, self._live, len(lengths), 0)]
        predicted = [] if reported else [generation.pages for generation in self._predicted]
        while spans:
            low, before, high, after = spans.pop()
            if before == after:
                continue
            if high - low > 1:
                middle = (low + high) // 2
                slots = self._slots_with(hashes[lengths[middle] - 1], predicted) & before
                spans += [(low, before, middle, slots), (middle, slots, high, slots & after)]
            elif low >= 0:
                yield lengths[low], before & ~after

    def _make_room(self) -> None:
        while self._n_pages > self._max_pages:
            self._n_sampled -= 1
            self._n_pages -= len(self._shards[self._n_sampled])
            self._shards[self._n_sampled] = {}


def _split_hashes(hashes: bytes) -> Iterator[bytes]:
    return (hashes[at : at + DIGEST_BYTES] for at in range(0, len(hashes), DIGEST_BYTES))


def _single_slots(slots: Slots) -> Iterator[Slots]:
    while slots:
        lowest = slots & -slots
        yield lowest
        slots ^= lowest


def _without(gone: Slots, shard: Shard) -> Shard:
    return {page_hash: left for page_hash, slots in shard.items() if (left := slots & ~gone)}

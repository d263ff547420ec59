"""Remembers the sequences that requests have left in their owners' slots.

Who leaves much forgets its own: the owner with the most loses what it has not used for longest.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deployments.contract.slots import MAX_SLOTS, SlotStatus
from kv.tiers.slot_file import CachedSequence

MAX_TOKENS = 1 << 22  # of all sequences
SEQUENCE_TOKENS = 1024  # that a sequence counts for beside its own


@dataclass(frozen=True, slots=True, eq=False)
class SlotSequence:
    """is_kept: False for one whose pages nobody finds again. used_at: in Unix seconds."""

    sequence: CachedSequence
    is_kept: bool
    used_at: float

    @property
    def n_tokens(self) -> int:
        return len(self.sequence.token_ids)

    @property
    def weight(self) -> int:
        return self.n_tokens + SEQUENCE_TOKENS


class SlotTable:
    """One thread changes it; any thread may call `statuses`."""

    def __init__(
        self, max_tokens: int = MAX_TOKENS, clock: Callable[[], float] = time.time
    ) -> None:
        self._max_tokens, self._clock = max_tokens, clock
        self._by_owner: dict[str, dict[int, SlotSequence]] = {}  # least recently used first
        self._weights: Counter[str] = Counter()

    def get(self, owner: str, id_slot: int) -> SlotSequence | None:
        return self._by_owner.get(owner, {}).get(id_slot)

    def put(
        self, owner: str, id_slot: int, sequence: CachedSequence, *, is_kept: bool = True
    ) -> None:
        """Has a slot hold a sequence in the place of the one it holds."""
        self.pop(owner, id_slot)
        kept = SlotSequence(sequence, is_kept, self._clock())
        own = self._by_owner.setdefault(owner, {})
        own[id_slot] = kept
        self._weights[owner] += kept.weight
        if len(own) > MAX_SLOTS:
            self.pop(owner, next(iter(own)))
        while self._weights.total() > self._max_tokens and len(self) > 1:
            heaviest, _ = self._weights.most_common(1)[0]
            self.pop(heaviest, next(iter(self._by_owner[heaviest])))

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def pop(self, owner: str, id_slot: int) -> SlotSequence | None:
        """Forgets what a slot holds, and returns it."""
        found = self._by_owner.get(owner, {}).pop(id_slot, None)
        if found is not None:
            self._weights[owner] -= found.weight
            if not self._by_owner[owner]:
                del self._by_owner[owner], self._weights[owner]
        return found

    def n_shared(self, hashes: Sequence[bytes]) -> int:
        """How many leading ones of these pages some sequence has, too."""
        sequences = (kept.sequence for own in self._by_owner.values() for kept in own.values())
        return max((_n_common(hashes, sequence.hashes) for sequence in sequences), default=0)

    def statuses(self, owner: str) -> Mapping[int, SlotStatus]:
        """Says what the slots of an owner hold."""
        own = self._by_owner.get(owner, {}).copy()
        return {id_slot: SlotStatus(kept.n_tokens, kept.used_at) for id_slot, kept in own.items()}


def _n_common(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    differing = (index for index, (left, right) in pairs if left != right)
    return next(differing, min(len(first), len(second)))

"""What may follow a sequence: what followed its last words before. And how far that was right."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

WORDS = 3  # tokens that have to stand before a draft as they did where it was found
BITS = 21  # of a token id in a key
MOST_WAITED = 32  # tokens after drafts that were wrong
MOST_TAKEN = 2048  # tokens a look: streams wait meanwhile, and a prompt may be long


@dataclass(slots=True)
class Drafts:
    """Of one sequence. Each draft whose first token is wrong doubles the wait for the next one."""

    last: dict[int, int] = field(default_factory=dict)  # what stood behind `WORDS` tokens last
    n_seen: int = WORDS - 1  # tokens whose ends are in `last`
    length: int | None = None  # that the next draft may have
    waited: int = 0
    next_at: int = 0  # known tokens from which on to draft

    def find(self, tokens: Ints, n: int, most: int) -> Ints:
        """Up to `most` tokens that may follow the first `n`; what repeats itself goes on so."""
        if n <= WORDS or n < self.next_at:
            return tokens[:0]
        newest = self._see(tokens, n)
        start = None if newest is None else self.last.get(newest)
        if start is None:
            return tokens[:0]
        most = most if self.length is None else min(most, self.length)
        return tokens[start + np.arange(most) % (n - start)]

    def _see(self, tokens: Ints, n: int) -> int | None:
        """Takes in all but the newest words, whose key it returns; None while more are left."""
        end = min(n, self.n_seen + 1 + MOST_TAKEN)
        some = tokens[self.n_seen - WORDS + 1 : end]
        keys = np.zeros(len(some) - WORDS + 1, dtype=np.int64)
        for place in range(WORDS):
            keys = keys << BITS | some[place : place + len(keys)]
        *known, newest = keys.tolist()
        self.last.update(zip(known, range(self.n_seen + 1, end), strict=True))
        self.n_seen = end - 1
        return newest if end == n else None

    def learn(self, n_drafted: int, n_right: int, n: int) -> None:
        """The first `n_right` of the tokens drafted last were drawn; `n` are known now."""
        self.length = 2 * n_right if n_right == n_drafted else n_right + 1
        self.waited = 0 if n_right else min(max(2 * self.waited, 1), MOST_WAITED)
        self.next_at = n + self.waited

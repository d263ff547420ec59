"""Drafts tokens of a sequence: those that followed its newest n-gram when it came before.

A draft whose first token is wrong doubles the wait for the next one.
"""

from dataclasses import dataclass, field

import numpy as np

from kv.arrays import IntArray

NGRAM_SIZE = 3  # tokens
TOKEN_ID_BITS = 21  # in a key of the index
MAX_WAIT = 32  # tokens after wrong drafts
MAX_INDEXED_AT_ONCE = 2048  # tokens: streams wait meanwhile, and a prompt may be long


@dataclass(slots=True)
class Trust:
    """How far drafts of one kind are trusted, for how right the last one was."""

    max_length: int | None = None  # of the next draft
    wait: int = 0  # tokens, after the last draft
    next_at: int = 0  # known tokens from which on to draft

    def limit(self, n: int, n_max: int) -> int:
        """How many of `n_max` tokens to draft behind `n` known ones."""
        if n < self.next_at:
            return 0
        return n_max if self.max_length is None else min(n_max, self.max_length)

    def learn(self, n_drafted: int, n_right: int, n: int) -> None:
        """The first `n_right` of the tokens drafted last were sampled; `n` tokens are known now."""
        self.max_length = 2 * n_right if n_right == n_drafted else n_right + 1
        self.wait = 0 if n_right else min(max(2 * self.wait, 1), MAX_WAIT)
        self.next_at = n + self.wait


@dataclass(slots=True)
class NgramIndex(Trust):
    """The n-grams of one sequence."""

    # By n-gram, the position behind its last occurrence.
    ends: dict[int, int] = field(default_factory=dict)
    n_indexed: int = NGRAM_SIZE - 1  # tokens up to which n-grams are in `ends`

    def propose(self, tokens: IntArray, n: int, n_max: int) -> IntArray:
        """Up to `n_max` tokens that may follow the first `n` of `tokens`. A sequence that repeats
        itself is taken to go on so."""
        n_max = self.limit(n, n_max)
        if n <= NGRAM_SIZE or n_max == 0:
            return tokens[:0]
        newest = self._index(tokens, n)
        start = None if newest is None else self.ends.get(newest)
        if start is None:
            return tokens[:0]
        proposed: IntArray = tokens[start + np.arange(n_max) % (n - start)]
        return proposed

    def _index(self, tokens: IntArray, n: int) -> int | None:
        """Indexes all n-grams but the newest, whose key it returns; None while more are left."""
        end = min(n, self.n_indexed + 1 + MAX_INDEXED_AT_ONCE)
        fresh = tokens[self.n_indexed - NGRAM_SIZE + 1 : end]
        keys = np.zeros(len(fresh) - NGRAM_SIZE + 1, dtype=np.int64)
        for i in range(NGRAM_SIZE):
            keys = keys << TOKEN_ID_BITS | fresh[i : i + len(keys)]
        *known, newest = keys.tolist()
        self.ends.update(zip(known, range(self.n_indexed + 1, end), strict=True))
        self.n_indexed = end - 1
        return newest if end == n else None

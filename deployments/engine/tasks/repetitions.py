"""Finds where the newest tokens of a sequence stood before. A new token costs one array pass.

A match holds no breaker, and does not reach back beyond the window that is asked for.
"""

from collections.abc import Sequence

import numpy as np

from deployments.engine.rng import mix
from kv.arrays import IntArray

_BASE = np.uint64(0x9E6C63D0876A9A47)  # odd: no power of it is 0


class Repetitions:
    """The repetitions in a sequence of up to `capacity` tokens. `breakers` are token ids."""

    def __init__(self, capacity: int, breakers: Sequence[int]) -> None:
        self._breakers = np.unique(np.array(breakers, dtype=np.int64))
        self._breaking = frozenset(breakers)
        self._n_followed = 0
        self._n_unbroken = 0  # tokens behind the last breaker
        # At index i + 1, for the token at i: how many tokens up to it are equal to the newest ones.
        self._lengths = np.zeros(capacity + 1, dtype=np.int64)

    def continuations(
        self, tokens: IntArray, window: int, min_length: int
    ) -> tuple[IntArray, IntArray]:
        """Token ids that would continue a repetition of `min_length` or more of the newest tokens,
        and for each the length of the longest such repetition. [n], [n]

        Looks at the last `window` of `tokens`, which are all known ones.
        """
        first = max(len(tokens) - window, 0)
        self._follow(tokens, first)
        lengths = self._lengths[first + 1 : len(tokens)]
        within = np.arange(1, len(lengths) + 1)  # a match begins in the window
        lengths = np.minimum(np.minimum(lengths, within), self._n_unbroken)
        is_long = lengths >= min_length
        ids, index = np.unique(tokens[first + 1 :][is_long], return_inverse=True)
        longest = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(longest, index, lengths[is_long])
        is_free = ~np.isin(ids, self._breakers)
        return ids[is_free], longest[is_free]

    def _follow(self, tokens: IntArray, first: int) -> None:
        n_new, self._n_followed = len(tokens) - self._n_followed, len(tokens)
        if n_new == 1:
            self._advance(tokens, first)
        elif n_new:
            self._begin(tokens, first)

    def _advance(self, tokens: IntArray, first: int) -> None:
        newest, end = tokens[-1], len(tokens)
        self._n_unbroken = 0 if int(newest) in self._breaking else self._n_unbroken + 1
        longer = self._lengths[first : end - 1] + 1
        self._lengths[first + 1 : end] = np.where(tokens[first:-1] == newest, longer, 0)

    def _begin(self, tokens: IntArray, first: int) -> None:
        window = tokens[first:]
        breaking = np.flatnonzero(np.isin(window, self._breakers))
        self._n_unbroken = len(window) - 1 - int(breaking[-1]) if len(breaking) else len(window)
        self._lengths[first + 1 : len(tokens)] = match_lengths(window)


def match_lengths(tokens: IntArray) -> IntArray:
    """Counts for each token but the last how many tokens up to it equal those up to the last one.

    A binary search over polynomial hashes modulo 2**64, for all of them at once.
    """
    n = len(tokens)
    powers = np.full(n + 1, _BASE, dtype=np.uint64)
    powers[0] = 1
    powers = powers.cumprod(dtype=np.uint64)
    sums = np.zeros(n + 1, dtype=np.uint64)
    sums[1:] = (mix(tokens.astype(np.uint64)) * powers[:n]).cumsum(dtype=np.uint64)
    ends = np.arange(1, n)
    found = np.zeros(n - 1, dtype=np.int64)
    for bit in reversed(range(n.bit_length())):
        longer = np.minimum(found + (1 << bit), ends)
        hashes = (sums[ends] - sums[ends - longer]) * powers[n - ends]
        found = np.where(hashes == sums[n] - sums[n - longer], longer, found)
    return found

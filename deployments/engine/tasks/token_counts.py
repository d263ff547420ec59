"""Counts the tokens of one sequence: each token once, and how often it stands in a window."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from kv.arrays import IntArray

INITIAL_CAPACITY = 64  # different tokens


class TokenCounts:
    """The counts of a sequence's `tokens`, an array that is filled in place. A prompt need not be
    counted."""

    def __init__(self, tokens: IntArray, n_prompt: int = 0) -> None:
        prompt_ids = np.unique(tokens[:n_prompt])
        self._tokens = tokens
        self._n = len(prompt_ids)
        self._index = {token_id: index for index, token_id in enumerate(prompt_ids.tolist())}
        self._ids = np.zeros(self._n + INITIAL_CAPACITY, dtype=np.int64)
        self._ids[: self._n] = prompt_ids
        self._counts = np.zeros(self._n + INITIAL_CAPACITY, dtype=np.float32)
        self._in_prompt = np.zeros(self._n + INITIAL_CAPACITY, dtype=np.bool_)
        self._in_prompt[: self._n] = True
        self._window: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._n

    @property
    def ids(self) -> IntArray:
        """Tokens of the prompt, and those that were ever in the window."""
        return self._ids[: self._n]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each stands in the window."""
        return self._counts[: self._n]

    @property
    def in_prompt(self) -> NDArray[np.bool_]:
        """Whether each stands in the first `n_prompt` tokens."""
        return self._in_prompt[: self._n]

    def peek(self, first: int, end: int) -> NDArray[np.float32]:
        """The counts, also of tokens that are new among `ids`, as if the window had been moved."""
        before_first, before_end = self._window or (first, first)
        added = [self._index_of(token_id) for token_id in self._tokens[before_end:end].tolist()]
        left = [self._index_of(token_id) for token_id in self._tokens[before_first:first].tolist()]
        counts = self.counts.copy()
        np.add.at(counts, np.array(added, dtype=np.int64), 1)
        np.subtract.at(counts, np.array(left, dtype=np.int64), 1)
        return counts

    def move_window(self, first: int, end: int) -> None:
        """Counts the tokens from `first` up to `end`. Neither ever moves back."""
        before_first, before_end = self._window or (first, first)
        self._add(self._tokens[before_end:end], 1)
        self._add(self._tokens[before_first:first], -1)
        self._window = first, end

    def _add(self, token_ids: IntArray, amount: int) -> None:
        for token_id, n in Counter(token_ids.tolist()).items():
            index = self._index_of(token_id)  # first: it may replace the counts by a larger array
            self._counts[index] += amount * n

    def _index_of(self, token_id: int) -> int:
        index = self._index.setdefault(token_id, self._n)
        if index == self._n:
            if index == len(self._ids):
                self._grow()
            self._ids[index] = token_id
            self._n += 1
        return index

    def _grow(self) -> None:
        self._ids, self._counts, self._in_prompt = (
            np.concatenate([array, np.zeros_like(array)])
            for array in (self._ids, self._counts, self._in_prompt)
        )

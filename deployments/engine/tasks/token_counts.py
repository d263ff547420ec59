"""What one sequence has said: each token once, and how often it stands in the part that is seen."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
ROOM = 64  # tokens, at first


class Said:
    """Of a sequence's `tokens`, an array that grows in place; the first ones may be `noted`."""

    def __init__(self, tokens: Ints, n_noted: int = 0) -> None:
        noted = np.unique(tokens[:n_noted])
        self._tokens = tokens
        self._n = len(noted)
        self._places = {token_id: place for place, token_id in enumerate(noted.tolist())}
        self._ids = np.zeros(self._n + ROOM, dtype=np.int64)
        self._ids[: self._n] = noted
        self._counts = np.zeros(self._n + ROOM, dtype=np.float32)
        self._noted = np.zeros(self._n + ROOM, dtype=np.bool_)
        self._noted[: self._n] = True
        self._seen: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._n

    @property
    def ids(self) -> Ints:
        """Tokens that are noted or were ever counted."""
        return self._ids[: self._n]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each is seen."""
        return self._counts[: self._n]

    @property
    def noted(self) -> NDArray[np.bool_]:
        return self._noted[: self._n]

    def see(self, first: int, end: int) -> None:
        """Counts the tokens from `first` to `end`, neither of which ever goes back."""
        before_first, before_end = self._seen or (first, first)
        self._add(self._tokens[before_end:end], 1)
        self._add(self._tokens[before_first:first], -1)
        self._seen = first, end

    def _add(self, token_ids: Ints, amount: int) -> None:
        for token_id, n in Counter(token_ids.tolist()).items():
            place = self._place(token_id)  # first: it may put a larger array in place of the counts
            self._counts[place] += amount * n

    def _place(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, self._n)
        if place == self._n:
            if place == len(self._ids):
                self._grow()
            self._ids[place] = token_id
            self._n += 1
        return place

    def _grow(self) -> None:
        self._ids, self._counts, self._noted = (
            np.concatenate([array, np.zeros_like(array)])
            for array in (self._ids, self._counts, self._noted)
        )

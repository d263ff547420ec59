"""Follows thinking in an output token by token, and forces its end where it has to end."""

from collections.abc import Iterable
from copy import copy

from deployments.contract.requests import ThinkingBudget


class ThinkingTracker:
    """A function of the tokens it has read; reading one costs a constant number of operations.

    All thinking of an output shares one budget. When the budget is spent and the model has begun
    the end mark by itself, the mark is continued and not begun anew.
    """

    def __init__(self, budget: ThinkingBudget) -> None:
        self._left = budget.tokens
        self._start = SequenceMatcher(budget.start_ids)
        self._end = SequenceMatcher(budget.end_ids)
        self._breaks = [SequenceMatcher(ids) for ids in budget.break_ids]
        self._is_open = budget.open
        self.n_read = 0

    def read(self, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            self.n_read += 1
            self._left -= self._is_open
            if not self._is_open:
                self._is_open = self._start.read(token_id)
            elif any(mark.read(token_id) for mark in (self._end, *self._breaks)):
                self._is_open = False
                for mark in (self._end, *self._breaks):
                    mark.reset()

    def copy(self) -> "ThinkingTracker":
        """One that goes on by itself."""
        other = copy(self)
        other._start, other._end = copy(self._start), copy(self._end)
        other._breaks = [copy(mark) for mark in self._breaks]
        return other

    def forced(self, is_over: bool) -> int | None:
        """The only token that may come next, where thinking has to end: its budget is spent, or
        `is_over`. Else None.
        """
        return self._end.next_id if self._is_open and (is_over or self._left <= 0) else None


class SequenceMatcher:
    """Finds a sequence of ids in a stream of them (Knuth, Morris, Pratt 1977)."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = ids
        self._n_matched = 0
        self._fallback = [0] * len(ids)  # how many ids still match when the next one does not
        n = 0
        for i in range(1, len(ids)):
            self._fallback[i] = n
            n = self._extended(n, ids[i])

    @property
    def next_id(self) -> int:
        """The id that would go on with what is matched."""
        return self._ids[self._n_matched]

    def reset(self) -> None:
        self._n_matched = 0

    def read(self, token_id: int) -> bool:
        """Whether this token completes the sequence; then the search begins anew."""
        self._n_matched = self._extended(self._n_matched, token_id) if self._ids else 0
        if not self._ids or self._n_matched < len(self._ids):
            return False
        self._n_matched = 0
        return True

    def _extended(self, n: int, token_id: int) -> int:
        """The length of the longest prefix that the stream ends with, which was `n` before."""
        while n and self._ids[n] != token_id:
            n = self._fallback[n]
        return n + (self._ids[n] == token_id)

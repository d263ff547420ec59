"""Follows the thoughts in an output token by token, and says what must follow an exhausted one."""

from collections.abc import Iterable

from deployments.wire import ThinkingBudget


class Thought:
    """A function of the tokens it has read; reading one costs a constant number of operations.

    All thoughts of an output share one budget. An end that the model has begun by itself when the
    budget is spent is gone on with, not begun anew.
    """

    def __init__(self, budget: ThinkingBudget) -> None:
        self._left = budget.tokens
        self._start = Marker(budget.start_ids)
        self._end = Marker(budget.end_ids)
        self._breaks = [Marker(ids) for ids in budget.break_ids]
        self._open = budget.open
        self.n_read = 0

    def read(self, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            self.n_read += 1
            self._left -= self._open
            if not self._open:
                self._open = self._start.read(token_id)
            elif any(mark.read(token_id) for mark in (self._end, *self._breaks)):
                self._open = False
                for mark in (self._end, *self._breaks):
                    mark.forget()

    def forced(self, over: bool) -> int | None:
        """The only token that may come next, if a thought is open and its budget is spent, or it
        is to be over in any case.
        """
        return self._end.awaited if self._open and (over or self._left <= 0) else None


class Marker:
    """Finds a sequence of ids in a stream of them (Knuth, Morris, Pratt 1977)."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = ids
        self._n_matched = 0
        self._shorter = [0] * len(ids)  # what is still matched when the token after is another
        n = 0
        for i in range(1, len(ids)):
            self._shorter[i] = n
            n = self._grown(n, ids[i])

    @property
    def awaited(self) -> int:
        return self._ids[self._n_matched]

    def forget(self) -> None:
        self._n_matched = 0

    def read(self, token_id: int) -> bool:
        """Whether this token completes the sequence, which is then looked for anew."""
        self._n_matched = self._grown(self._n_matched, token_id) if self._ids else 0
        if not self._ids or self._n_matched < len(self._ids):
            return False
        self._n_matched = 0
        return True

    def _grown(self, n: int, token_id: int) -> int:
        """The longest beginning that the stream ends with, given that it was `n` long before."""
        while n and self._ids[n] != token_id:
            n = self._shorter[n]
        return n + (self._ids[n] == token_id)

"""The rules for what may follow in the output of one sequence. A need makes them narrower."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bitmask = NDArray[np.uint32]  # [vocab / 32] of one sequence, or [sequences, vocab / 32]


class Constraint:
    """Allows any token. The scheduler's thread calls it.

    is_over: the output is complete, and nothing may follow.
    failure: why it can't go on, though it is not complete.
    """

    is_over = False
    failure = ""

    @property
    def is_masking(self) -> bool:
        """Whether the next token can't be any, so that `mask` says which."""
        return False

    def mask(self, n_drafted: int) -> Bitmask:
        """Which tokens may follow the first `n_drafted` drafted ones. [vocab / 32]"""
        raise NotImplementedError("any token may follow")

    def allows(self, token_id: int, n_drafted: int) -> bool:
        """Whether a token may follow the first `n_drafted` drafted ones."""
        return True

    @property
    def can_look_ahead(self) -> bool:
        """Whether it takes little to say which tokens may follow drafted ones."""
        return True

    def draft(self, guess: Sequence[int], n_max: int, n_forced: int) -> tuple[Sequence[int], int]:
        """Returns the guessed next tokens in front of the first one that can't follow, `n_max` at
        most; then up to `n_forced` tokens that must come next. And how many were guessed."""
        return guess, len(guess)

    def begins_in(self, token_ids: Sequence[int]) -> bool:
        """Whether it allows any token now, and will not any more behind these."""
        return False

    def refuses(self, token_id: int) -> bool:
        """Whether a sampled token can't follow after all, and another one is to be sampled."""
        return False

    def defers(self, token_id: int) -> bool:
        """Whether a sampled token has to be read on another thread before `advance`. Begins that;
        the scheduler is woken when it `is_read`."""
        return False

    @property
    def is_read(self) -> bool:
        """Whether no other thread reads a token."""
        return True

    def advance(self, token_id: int) -> None:
        """The token follows, which does not end the sequence."""

    def stall(self) -> None:
        """No token is left that may follow. Sets `is_over` where that is the end."""


ANY_TOKEN = Constraint()

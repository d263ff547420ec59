"""Drafts under grammars: read by a copy, so that a sequence's own matcher knows nothing of them."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from deployments.engine.tasks.constraint import Bitmask

if TYPE_CHECKING:
    from llguidance import LLMatcher


def compute_mask(matcher: "LLMatcher", mask: Bitmask, banned: Sequence[int]) -> None:
    """Writes which tokens may follow, but for `banned` ones. mask [vocab / 32], all 0"""
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if matcher.is_error():  # llguidance would have it end then
        mask[:] = 0
    for token_id in banned:
        mask[token_id // 32] &= ~np.uint32(1 << token_id % 32)


def follow(
    matcher: "LLMatcher", guess: Sequence[int], n_max: int, n_forced: int
) -> tuple[list[int], int]:
    """Returns the guessed next tokens in front of the first one that can't follow, `n_max` at most;
    then up to `n_forced` tokens of text that must come next. And how many were guessed."""
    ahead = matcher.deep_copy()
    n = ahead.try_consume_tokens([*guess[:n_max]])
    forced: list[int] = []
    if n_forced > 0 and n < n_max and not ahead.is_error() and not ahead.is_stopped():
        forced = ahead.compute_ff_tokens()[: min(n_forced, n_max - n)]
    return [*guess[:n], *forced], n


class DraftMasks:
    """Which tokens may follow behind each of a sequence's drafted tokens."""

    def __init__(
        self, matcher: "LLMatcher", drafted: Sequence[int], n_words: int, banned: Sequence[int]
    ) -> None:
        self._matcher = matcher.deep_copy()
        self._drafted = drafted
        self._banned = banned
        self._masks = np.zeros((len(drafted), n_words), dtype=np.uint32)
        self.computed: Future[None] | None = None

    def compute(self) -> None:
        """Computes the masks, on a thread of the worker. Behind a token that ends the sentence no
        token may follow."""
        for token_id, mask in zip(self._drafted, self._masks, strict=True):
            if not self._matcher.consume_token(token_id) or self._matcher.is_stopped():
                return
            compute_mask(self._matcher, mask, self._banned)

    def behind(self, n_drafted: int) -> Bitmask:
        """Returns the mask behind the first `n_drafted` of the tokens. [vocab / 32]"""
        assert self.computed is not None
        self.computed.result()
        mask: Bitmask = self._masks[n_drafted - 1]
        return mask

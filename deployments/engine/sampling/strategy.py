"""The base of sampling strategies: each changes the logits of selected rows that ask for it."""

from abc import ABC, abstractmethod

from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.sampling.rows import SamplingRows

BANNED = float("-inf")
# Decides which token is sampled whatever the other logits are, and is far from float32's overflow.
MAX_LOGIT_CHANGE = 1e9


def has_truncation(params: SamplingParams) -> bool:
    """Whether truncation applies: greedy rows need none, and Mirostat replaces it."""
    return params.temperature > 0 and params.mirostat is None


class BaseSamplingStrategy(ABC):
    """One way to change logits before a token is sampled from them. It has no state of its own."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        """Changes logits [rows, vocab] float32 in place, in some of the selected rows only.

        What a row becomes depends on that row alone. A banned token's logit is BANNED.
        """

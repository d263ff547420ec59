"""What a sampling strategy is: it sees the chosen rows and touches those that ask for it."""

from abc import ABC, abstractmethod

from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.wire import SamplingParams

NEVER = float("-inf")
# A change to a logit that decides any draw, yet is far from where float32 overflows.
STRONG = 1e9


def truncates(params: SamplingParams) -> bool:
    """Greedy rows need no truncation, Mirostat does without."""
    return params.temperature > 0 and params.mirostat is None


class SamplingStrategy(ABC):
    """Changes logits [rows, vocab] in place."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: SamplingRows) -> None: ...

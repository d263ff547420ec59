"""The products of experts that are called by what transformers has in their place."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class QuantizedExperts(nn.Module, ABC):
    """Matrices of experts [outputs, inputs] behind each other."""

    @abstractmethod
    def multiply(self, x: Tensor, expert: int) -> Tensor:
        """The product of one expert's weights: [n, in] -> [n, out]."""


class GroupedExperts(QuantizedExperts):
    """Experts of which all that a step's tokens are sent to multiply at once, on a GPU.

    No number of tokens is known but that of all: CUDA graphs can capture it.
    """

    @abstractmethod
    def choose(self, index: Tensor) -> Any:
        """Prepares an index [tokens, k] of experts for the products of a step."""

    @abstractmethod
    def multiply_all(self, x: Tensor, chosen: Any) -> Tensor:
        """The products of all tokens and their experts: [tokens * k, out].

        x: [tokens, in], or [tokens * k, in]. The products of no expert are 0.
        """

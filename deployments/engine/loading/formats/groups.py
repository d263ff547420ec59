"""Says which inputs of a matrix share a factor."""

from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from deployments.engine.loading.formats.packing import taken


class Groups(NamedTuple):
    """Inputs side by side that share a factor. All groups have one size.

    order: int64 [inputs], the input that each column is of; None: columns lie as inputs do.
    columns: int64 [groups], the column of each group in the tensors of factors.
    """

    order: Tensor | None
    columns: Tensor

    def codes(self, codes: Tensor) -> Tensor:
        """The codes of rows [rows, inputs] in the order of the columns."""
        return codes if self.order is None else codes[:, self.order]

    def factors(self, factors: Tensor) -> Tensor:
        """The factors of rows [rows, columns of the file] for each group."""
        return taken(factors, self.columns, 1)


def groups_of(ids: Tensor) -> Groups:
    """The groups of inputs, each of which names the column of its factor: int64 [inputs].

    Inputs whose columns do not follow each other are sorted by them. Groups of several sizes become
    smaller ones of the largest size that divides them all, several of which have the same factor.
    """
    order = None
    if bool((ids.diff() < 0).any()):
        order = torch.argsort(ids, stable=True)
        ids = ids[order]
    _, counts = torch.unique_consecutive(ids, return_counts=True)
    return Groups(order, ids[:: gcd(*counts.tolist())])


def even_groups(n_inputs: int, size: int) -> Groups:
    """Groups of a size. The last one may be smaller."""
    return groups_of(torch.arange(n_inputs) // size)

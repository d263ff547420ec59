"""Matrices of quantized weights as files have them, of which nothing is read until it is asked for.

A storage format is a subclass: it says what its file's bytes are.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from deployments.engine.quantized.block_rows import BlockRows
from deployments.engine.quantized.layout import Layout
from deployments.engine.quantized.quantized_rows import QuantizedRows

Arrangement = tuple[Layout, bytes | None]  # of its rows, and the order of its inputs


class StoredMatrix(ABC):
    """A matrix [rows, columns]: each row has the weights of an output.

    storage: the name of its storage format, as people know it: "Q4_K", "fp8".
    n_bytes: that it takes in its file.
    input_order: int64 [columns], the number of the input that each column is to be multiplied with,
        or `n_inputs` for a column of no input; None: columns lie as inputs do.
    """

    def __init__(
        self,
        storage: str,
        n_rows: int,
        n_inputs: int,
        n_bytes: int,
        input_order: Tensor | None = None,
    ) -> None:
        self.storage = storage
        self.n_rows = n_rows
        self.n_inputs = n_inputs
        self.n_bytes = n_bytes
        self.input_order = input_order

    @property
    def n_columns(self) -> int:
        return self.n_inputs if self.input_order is None else len(self.input_order)

    @cached_property
    def layout(self) -> Layout:
        """The layout of all its rows."""
        return self.rows(torch.zeros(1, dtype=torch.int64)).layout

    @cached_property
    def arrangement(self) -> Arrangement:
        """Rows of all matrices of one arrangement can be one matrix."""
        order = self.input_order
        return self.layout, None if order is None else order.numpy().tobytes()

    @abstractmethod
    def rows(self, index: Tensor) -> QuantizedRows:
        """Reads some rows, by their numbers: int64 [n]. All rows have one layout.

        Raises OSError where the file can't be read.
        """

    def block_rows(self, index: Tensor) -> BlockRows | None:
        """Some rows where they lie, by their numbers: int64 [n], n > 0. They are those of `rows`.

        None: nobody has said how blocks of this format are packed.

        Raises OSError where the file can't be read.
        """
        return None

    def let_go(self) -> None:  # noqa: B027
        """Gives the memory back that its file's bytes take since they were read. They can be read
        again."""

    def numbers(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Some rows, dequantized to a type: [n, columns]."""
        return self.rows(index).dequantize().to(dtype)

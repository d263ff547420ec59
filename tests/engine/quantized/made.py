"""Matrices of random quantized weights, in memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deployments.engine.quantized.layout import Codebook, FactorType, Layout, integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight

INT4 = integers(4, -8)


class MadeMatrix(StoredMatrix):
    """Rows that are all in memory. It counts how many have been read."""

    def __init__(self, rows: QuantizedRows, input_order: Tensor | None = None) -> None:
        n_rows, n_inputs = rows.codes.shape
        super().__init__("made", n_rows, n_inputs, n_rows * n_inputs, input_order)
        self._all = rows
        self.n_read = 0
        self.is_let_go = False

    def rows(self, index: Tensor) -> QuantizedRows:
        self.n_read += len(index)
        return self._all.take(index)

    def let_go(self) -> None:
        self.is_let_go = True


def random_rows(
    shape: Sequence[int],
    codebook: Codebook = INT4,
    group: int = 32,
    *,
    coarse_group: int = 0,
    has_least: bool = False,
    dtype: torch.dtype = torch.float16,
    seed: int = 0,
) -> QuantizedRows:
    """Rows [rows, inputs]. group: inputs that share a scale. coarse_group: inputs that share the
    second factor of a scale; 0: there is none."""
    n_rows, n_inputs = shape
    random = torch.Generator().manual_seed(seed)

    def factors() -> Factors:
        n = n_inputs // (coarse_group or group)
        coarse = torch.randn(n_rows, n, generator=random).mul_(0.05).to(dtype)
        if not coarse_group:
            return Factors(coarse)
        fine = torch.randint(0, 64, (n_rows, n_inputs // group), generator=random)
        return Factors(coarse, fine.to(torch.uint8), fine_bits=6)

    codes = torch.randint(0, len(codebook.values), (n_rows, n_inputs), generator=random)
    return QuantizedRows(
        codebook, codes.to(torch.uint8), factors(), factors() if has_least else None
    )


def rows_of(layout: Layout, shape: tuple[int, int], seed: int = 0) -> QuantizedRows:
    """Rows [rows, inputs] of any layout."""
    n_rows, n_inputs = shape
    random = torch.Generator().manual_seed(seed)

    def factors(types: Sequence[FactorType]) -> Factors:
        parts = []
        for part in types:
            n = n_inputs // part.group if part.group else 1
            numbers = torch.randn(n_rows, n, generator=random)
            if part.bits:
                numbers = torch.randint(1 << part.bits, (n_rows, n), generator=random) + part.offset
            elif part.dtype in (torch.uint8, torch.int8):
                least = 0 if part.dtype is torch.uint8 else -63
                numbers = torch.randint(least, 64, (n_rows, n), generator=random)
            parts.append(numbers.to(part.dtype))
        *fine, coarse = parts
        return Factors(coarse, fine[0] if fine else None, types[0].bits)

    codes = torch.randint(0, len(layout.codebook.values), shape, generator=random)
    least = factors(layout.least) if layout.least else None
    return QuantizedRows(layout.codebook, codes.to(torch.uint8), factors(layout.scale), least)


def random_weight(shape: Sequence[int], seed: int = 0, **options: bool | int) -> StoredWeight:
    """A parameter of any shape [..., outputs, inputs]."""
    *outer, n_inputs = shape
    n_rows = torch.Size(outer).numel()
    matrix = MadeMatrix(random_rows((n_rows, n_inputs), seed=seed, **options))  # type: ignore[arg-type]
    return StoredWeight.of(matrix, shape, torch.float32)

"""Linear layers with quantized weights."""

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from deployments.engine.forward.linear import (
    ALL_ROWS,
    EPILOGUES,
    KernelLinear,
    onednn_product,
    pack_for_onednn,
)
from deployments.engine.kernels.cpu import int8_ops, matmul_ops
from deployments.engine.kernels.cpu.dispatch import empty
from deployments.engine.kernels.cpu.features import (
    has_bf16_tiles,
    has_matmul_kernels,
    has_native_bf16,
    is_cpu_bf16,
)
from deployments.engine.kernels.cpu.matmul_kernels import PACKS
from deployments.engine.kernels.cpu.packed_weight import (
    PackedMatrix,
    PackedPointer,
    PackedWeight,
    pack_rows,
)
from deployments.engine.quantized.input_share import ordered
from deployments.engine.quantized.stored_weight import StoredWeight
from deployments.engine.threads import usable_threads

# From this number of rows on, oneDNN's bfloat16 product saves more time than dequantizing takes.
MIN_DEQUANTIZED_ROWS = 16
# The same where our kernels multiply bfloat16, too, by the same instructions.
MIN_DEQUANTIZED_ROWS_BESIDE_PAIRS = 48
MIN_ROUNDED_ROWS = 33  # whose inputs are rounded to 8 bits; steps of fewer rows are recorded
# Outputs that are dequantized at once take about this memory, which a cache holds. They are a
# multiple of those of oneDNN's largest block.
DEQUANTIZED_BYTES = 1 << 20
MIN_DEQUANTIZED_OUTPUTS = max(PACKS)
FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
MIN_AMAX = 1e-12  # the smallest maximum of a row, so that its scale is not 0


class PackedProduct(KernelLinear):
    """A product of weights that are packed for our CPU kernels."""

    @property
    @abstractmethod
    def matrices(self) -> Sequence[PackedMatrix]:
        """All outputs in order, as others may read their weights."""


class PackedQuantized(PackedProduct):
    """A linear layer with quantized weights, packed for our CPU kernels.

    Where the processor multiplies bytes, inputs of many rows are rounded to 8 bits if codes are
    whole numbers. Else, or where it multiplies tiles of bfloat16, oneDNN is faster with many rows.
    Weights are then dequantized for each product, into memory that is packed as oneDNN reads it.
    """

    weight: Tensor  # packed
    input_order: Tensor | None  # [columns], as a StoredMatrix has it

    def __init__(
        self,
        packed: PackedWeight,
        bias: Tensor | None,
        many_rows: "ManyRows | None" = None,
        input_order: Tensor | None = None,
        n_inputs: int | None = None,
    ) -> None:
        """Products of many rows are computed as `many_rows` says; None: as is fastest.

        n_inputs: where some columns are of no input; None: each column is of one.
        """
        many_rows = _fastest_for(packed) if many_rows is None else many_rows
        sizes = packed.n_in, packed.n_out
        super().__init__(sizes, bias, packed.pointer, many_rows.first - 1)
        self.in_features = packed.n_in if n_inputs is None else n_inputs
        assert packed.pack_format.quantized is not None
        matmul_ops.compile_for(packed.pack_format.quantized)
        self._are_rounded = many_rows.are_rounded
        if self._are_rounded:
            int8_ops.compile_for(packed.pack_format.quantized)
        self._matrix = packed  # owns the memory that our kernel reads by its address
        self.register_buffer("weight", packed.weights)
        self.register_buffer("input_order", input_order)

    @classmethod
    def of(cls, weight: StoredWeight, bias: Tensor | None) -> "PackedQuantized | None":
        """Packs [out, in] of one arrangement. None: our kernels can't compute with it."""
        n_out, n_in = weight.shape
        layout = weight.read(0, 1).layout
        packed = pack_rows(weight, layout, n_out, weight.n_columns, usable_threads())
        if packed is None:
            return None
        return cls(packed, bias, input_order=weight.input_order, n_inputs=n_in)

    @property
    def matrices(self) -> Sequence[PackedMatrix]:
        return [PackedMatrix(self._matrix, self.in_features, self.input_order)]

    def forward(self, x: Tensor, epilogue: str = "none") -> Tensor:
        return super().forward(ordered(x, self.input_order), epilogue)

    def forward_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        return super().forward_binary(ordered(x, self.input_order), other, epilogue)

    def write(self, out: Tensor, x: Tensor, epilogue: str, other: Tensor | None = None) -> None:
        """Computes into some outputs of a larger result, with those of `other`; both are
        [..., out]. Its inputs are ordered already."""
        if x.numel() <= self._max_kernel_numel:
            pointer, code = self._matrix.pointer, EPILOGUES[epilogue]
            matmul_ops.matmul_into(out, x, pointer, self.bias, code, other)
        elif self._are_rounded:
            pointer, code = self._matrix.pointer, EPILOGUES[epilogue]
            int8_ops.matmul_into(out, x, pointer, self.bias, code, other)
        elif other is None:
            for outputs, product in self._products(x, epilogue):
                out[..., outputs] = product
        else:
            self._multiply_binary(x, other, epilogue)
            if out.data_ptr() != other.data_ptr():
                out.copy_(other)

    def _multiply(self, x: Tensor, epilogue: str) -> Tensor:
        if self._are_rounded:
            return self._multiply_rounded(x, epilogue)
        parts = [product for _, product in self._products(x, epilogue)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _multiply_rounded(self, x: Tensor, epilogue: str, other: Tensor | None = None) -> Tensor:
        pointer, code = self._matrix.pointer, EPILOGUES[epilogue]
        return int8_ops.matmul(x, pointer, self.out_features, self.bias, code, other)

    def _multiply_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        if self._are_rounded:
            return self._multiply_rounded(x, epilogue, other)
        for outputs, product in self._products(x, "none"):
            part = other[..., outputs]
            if epilogue == "mul":
                part.mul_(product)
            else:
                part.add_(product)
        return other

    def _products(self, x: Tensor, epilogue: str) -> Iterator[tuple[slice, Tensor]]:
        """The products [..., outputs] of some outputs after the other."""
        n_in = self._matrix.n_in
        step = _outputs_at_once(n_in)
        for first in range(0, self.out_features, step):
            end = min(first + step, self.out_features)
            weight, pointer = SCRATCH.matrix(end - first, n_in)
            assert pointer is not None, "`can_dequantize` was not asked"
            part = self._matrix.outputs(first, end).pointer
            matmul_ops.dequantize(part, pointer, end - first, n_in)
            bias = None if self.bias is None else self.bias[first:end]
            yield slice(first, end), onednn_product(x, weight, bias, epilogue)


class JoinedPacked(PackedProduct):
    """A linear layer whose outputs are those of several, one after the other.

    Weights of several arrangements are no one matrix. Each layer computes into a slice of the
    result.
    """

    def __init__(self, parts: Sequence[PackedQuantized]) -> None:
        sizes = parts[0].in_features, sum(part.out_features for part in parts)
        super().__init__(sizes, None, None, 0)
        self.parts = nn.ModuleList(parts)
        for before, part in pairwise(parts):
            if _are_equal(before.input_order, part.input_order):
                part.input_order = before.input_order

    @property
    def has_kernel(self) -> bool:
        return True

    @property
    def matrices(self) -> Sequence[PackedMatrix]:
        return [matrix for part in self._parts for matrix in part.matrices]

    def _multiply(self, x: Tensor, epilogue: str) -> Tensor:
        out = empty((*x.shape[:-1], self.out_features), x.dtype)
        for outputs, part, inputs in self._slices(x):
            part.write(out[..., outputs], inputs, epilogue)
        return out

    def _multiply_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        other = other.contiguous()
        for outputs, part, inputs in self._slices(x):
            own = other[..., outputs]
            part.write(own, inputs, epilogue, own)
        return other

    def _slices(self, x: Tensor) -> Iterator[tuple[slice, PackedQuantized, Tensor]]:
        """Each part with its outputs, and with inputs in its order."""
        first, order, inputs = 0, None, x
        for part in self._parts:
            if part.input_order is not order:
                order = part.input_order
                inputs = ordered(x, order)
            yield slice(first, first + part.out_features), part, inputs
            first += part.out_features

    @property
    def _parts(self) -> list[PackedQuantized]:
        return [cast(PackedQuantized, part) for part in self.parts]


def _are_equal(order: Tensor | None, other: Tensor | None) -> bool:
    return order is not None and other is not None and torch.equal(order, other)


def packed_linear(weight: StoredWeight, bias: Tensor | None) -> PackedProduct | None:
    """A layer of [out, in] on a CPU, packed for our kernels. None: they can't multiply it."""
    if weight.dim() != 2 or weight.place.is_transposed or not is_cpu_bf16(weight):
        return None
    if not has_matmul_kernels() or not weight.numel():
        return None
    parts: list[PackedQuantized] = []
    first = 0
    for own in weight.by_arrangement():
        end = first + own.n_outputs
        part = PackedQuantized.of(own, None if bias is None else bias[first:end])
        if part is None:
            return None
        parts.append(part)
        first = end
    return parts[0] if len(parts) == 1 else JoinedPacked(parts)


class ManyRows(NamedTuple):
    """How products of many rows are computed, from the `first` number of rows on: of inputs that
    are rounded to 8 bits, or of dequantized weights by oneDNN."""

    first: int
    are_rounded: bool


def _fastest_for(packed: PackedWeight) -> ManyRows:
    quantized = packed.pack_format.quantized
    assert quantized is not None, "weights of bfloat16 have no codes"
    is_dequantized = has_native_bf16() and can_dequantize(packed.n_in, packed.n_out)
    is_dequantized = is_dequantized and not packed.is_filled
    if is_dequantized and has_bf16_tiles():
        return ManyRows(MIN_DEQUANTIZED_ROWS, are_rounded=False)
    if quantized.integers is not None:
        return ManyRows(MIN_ROUNDED_ROWS, are_rounded=True)
    if not is_dequantized:
        return ManyRows(ALL_ROWS, are_rounded=False)
    rows = MIN_DEQUANTIZED_ROWS_BESIDE_PAIRS if quantized.has_pairs else MIN_DEQUANTIZED_ROWS
    return ManyRows(rows, are_rounded=False)


def can_dequantize(n_in: int, n_out: int) -> bool:
    """Whether oneDNN packs matrices of this layer's sizes as our kernel writes them."""
    step = _outputs_at_once(n_in)
    parts = {min(step, n_out), n_out % step or step}
    return all(SCRATCH.matrix(part, n_in)[1] is not None for part in parts)


def _outputs_at_once(n_in: int) -> int:
    fitting = DEQUANTIZED_BYTES // (2 * n_in)
    return max(fitting - fitting % MIN_DEQUANTIZED_OUTPUTS, MIN_DEQUANTIZED_OUTPUTS)


class _Scratch(threading.local):
    """Each thread's matrices of oneDNN's, which weights are dequantized into."""

    def __init__(self) -> None:
        self._matrices: dict[tuple[int, int], tuple[Tensor, PackedPointer | None]] = {}

    def matrix(self, n_out: int, n_in: int) -> tuple[Tensor, PackedPointer | None]:
        """Returns what `pack_for_onednn` does. All matrices of one size share their memory."""
        found = self._matrices.get((n_out, n_in))
        if found is None:
            some = torch.arange(251, dtype=torch.bfloat16)  # exact
            numbers = some.repeat(n_out * n_in // len(some) + 1)[: n_out * n_in]
            found = self._matrices[n_out, n_in] = pack_for_onednn(numbers.view(n_out, n_in))
        return found


SCRATCH = _Scratch()


def to_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantizes rows [n, in]: returns them as float8_e4m3fn, and their scales [n, 1] float32.

    A row is its float8 values times its scale.
    """
    if rows.is_cuda:  # one launch instead of eight, before every product
        from deployments.engine.kernels.gpu import layer_ops

        return layer_ops.to_float8(rows.contiguous(), MIN_AMAX)
    values = rows.float()
    scale = values.abs().amax(1, keepdim=True).clamp_(min=MIN_AMAX) / FP8_MAX
    return (values / scale).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale

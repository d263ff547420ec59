"""Packed weights: they are made of rows a piece at a time, and rows are read out of them again."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import contiguous_rows
from deployments.engine.kernels.cpu.pack_format import (
    WORD_BITS,
    PackFormat,
    QuantizedFormat,
    Regions,
    format_of,
)
from deployments.engine.kernels.cpu.quantized.block_ir import BITS_OF_LOW, WHOLE_BYTE
from deployments.engine.kernels.cpu.quantized.block_kernels import pack_blocks_kernel
from deployments.engine.kernels.cpu.quantized.embedding_kernels import (
    FACTOR_NUMBERS,
    embedding_kernel,
)
from deployments.engine.kernels.cpu.quantized.packing_kernels import (
    pack_bytes_kernel,
    pack_planes_kernel,
    pack_words_kernel,
)
from deployments.engine.kernels.cpu.simd import PACK
from deployments.engine.quantized.block_rows import BlockRows
from deployments.engine.quantized.layout import Layout
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

BYTE_BITS = 8
WEIGHTS_AT_ONCE = 1 << 20  # that are packed: so many stay in a cache
BLOCK_WEIGHTS_AT_ONCE = 1 << 24  # that are packed from where they lie, before it is let go


class StoredRows(Protocol):
    """Rows of one layout, by the first one and the end."""

    def read(self, first: int, end: int) -> QuantizedRows: ...

    def block_rows(self, first: int, end: int) -> BlockRows | None:
        """The same rows where they lie; None: they have to be read."""


class PackedPointer(NamedTuple):
    """The address of a packed matrix; `regions` is None where its weights are bfloat16."""

    address: int
    pack_format: PackFormat
    regions: Regions | None = None


class PackedWeight(NamedTuple):
    """It has to be kept as long as its `pointer` is used.

    weights: bfloat16 [blocks, in / 2, pack, 2], or uint8 [blocks, bytes].
    """

    weights: Tensor
    pack_format: PackFormat
    n_out: int
    n_in: int

    @property
    def is_filled(self) -> bool:
        """Whether it has zeros behind its inputs."""
        quantized = self.pack_format.quantized
        return bool(self.n_in % (2 if quantized is None else quantized.unit))

    @property
    def pointer(self) -> PackedPointer:
        quantized = self.pack_format.quantized
        regions = None if quantized is None else quantized.regions(self.n_in)
        return PackedPointer(self.weights.data_ptr(), self.pack_format, regions)

    def outputs(self, first: int, end: int) -> "PackedWeight":
        """Returns the weights of some outputs; `first` is a multiple of PACK."""
        blocks = self.weights[first // PACK : -(-end // PACK)]
        return self._replace(weights=blocks, n_out=end - first)

    def take(self, index: Tensor) -> QuantizedRows:
        """Reads some outputs, by their numbers, as they were packed."""
        quantized = self.pack_format.quantized
        assert quantized is not None, "weights of bfloat16 have no codes"
        layout, blocks, outputs = quantized.layout, index // PACK, index % PACK
        views = _Views(self.weights, quantized, self.n_in)
        factors = [view[blocks, :, outputs] for view in views.factors]
        n = len(layout.scale)
        codes = _codes(views.codes[blocks, ..., outputs], quantized)
        return QuantizedRows(
            layout.codebook,
            codes[:, : self.n_in],
            Factors(*reversed(factors[:n])),
            Factors(*reversed(factors[n:])) if layout.least else None,
        )


class PackedMatrix(StoredMatrix):
    """Packed weights that rows are read out of: embeddings share those of the output layer."""

    def __init__(self, packed: PackedWeight, n_inputs: int, input_order: Tensor | None) -> None:
        super().__init__("packed", packed.n_out, n_inputs, packed.weights.nbytes, input_order)
        self._packed = packed

    def rows(self, index: Tensor) -> QuantizedRows:
        return self._packed.take(index)

    def numbers(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        if dtype is not torch.bfloat16:
            return super().numbers(index, dtype)
        ids = index.contiguous()
        numbers = ids.numpy()
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.n_rows:
            raise IndexError(f"a number of a row is not below {self.n_rows}")
        out = torch.empty((len(numbers), self.n_columns), dtype=dtype)
        embedding_kernel().call(
            out.numel(),
            ids=ids.data_ptr(),
            n=len(numbers),
            out=out.data_ptr(),
            factors=self._factors.data_ptr(),
            **self._described,
        )
        return out

    @cached_property
    def _factors(self) -> Tensor:
        """Returns what `embedding_kernel` takes by this name."""
        quantized, n_in = self._packed.pack_format.quantized, self._packed.n_in
        assert quantized is not None, "weights of bfloat16 have no codes"
        offsets = quantized.regions(n_in).factors
        return torch.tensor(
            [
                (offset, FACTOR_NUMBERS[factor.dtype], quantized.n_groups(factor, n_in))
                for offset, factor in zip(offsets, quantized.factors, strict=False)
            ]
        )

    @cached_property
    def _described(self) -> dict[str, int]:
        """Returns the other arguments of `embedding_kernel` that stay the same."""
        quantized, weights = self._packed.pack_format.quantized, self._packed.weights
        assert quantized is not None, "weights of bfloat16 have no codes"
        return {
            "weights": weights.data_ptr(),
            "stride": weights.stride(0),
            "width": self.n_columns,
            "low_bits": quantized.planes[0] if quantized.has_words else 0,
            "high_bits": quantized.high_bits,
            "table": quantized.layout.codebook.table.data_ptr(),
            "n_factors": len(self._factors),
            "n_scales": len(quantized.layout.scale),
        }


class _Views:
    """The regions of some blocks of quantized weights.

    codes: uint8 [blocks, inputs, PACK], or int32 [blocks, units, words, PACK].
    factors: [blocks, groups, PACK] of each kind.
    """

    def __init__(self, blocks: Tensor, quantized: QuantizedFormat, n_in: int) -> None:
        regions, n = quantized.regions(n_in), len(blocks)
        n_units = regions.n_inputs // quantized.unit
        codes = blocks[:, : n_units * quantized.unit_bytes]
        if not quantized.has_words:
            self.codes = codes.view(n, regions.n_inputs, PACK)
        else:
            words = codes.view(torch.int32)
            self.codes = words.view(n, n_units, words.shape[1] // n_units // PACK, PACK)
        self.factors = []
        for factor, at in zip(quantized.factors, regions.factors, strict=False):
            groups = quantized.n_groups(factor, n_in)
            part = blocks[:, at : at + groups * PACK * factor.dtype.itemsize]
            self.factors.append(part.view(factor.dtype).view(n, groups, PACK))


def pack(weight: Tensor) -> PackedWeight:
    """[out, in] of bfloat16."""
    rows = contiguous_rows(_filled(weight, 0, weight.shape[1] % 2))
    # Pairs are copied as numbers: ten times as fast as numbers side by side.
    pairs = _in_blocks(rows.view(torch.int32)).transpose(1, 2).contiguous()
    blocks = pairs[..., None].view(weight.dtype)
    return PackedWeight(blocks, PackFormat(PACK), *weight.shape)


def empty(layout: Layout, n_out: int, n_in: int) -> PackedWeight | None:
    """Memory for a matrix, in which there is anything; None: our kernels can't compute with its
    layout."""
    quantized = format_of(layout)
    if quantized is None:
        return None
    stride = quantized.regions(n_in).stride
    blocks = torch.empty(-(-n_out // PACK), stride, dtype=torch.uint8)
    return PackedWeight(blocks, PackFormat(PACK, quantized), n_out, n_in)


def pack_rows(
    rows: StoredRows, layout: Layout, n_out: int, n_in: int, n_threads: int = 1
) -> PackedWeight | None:
    """Packs a matrix whose rows are read a piece at a time: the packed one is all its memory.

    None: our kernels can't compute with its layout.
    """
    packed = empty(layout, n_out, n_in)
    if packed is None:
        return None
    for first, end in _pieces(0, n_out, n_in, BLOCK_WEIGHTS_AT_ONCE):
        blocks = rows.block_rows(first, end)
        if blocks is not None:
            fill_blocks(packed.outputs(first, end), blocks, n_threads)
            blocks.let_go()  # at once: a matrix may be larger than a layer
            continue
        for piece in _pieces(first, end, n_in, WEIGHTS_AT_ONCE):
            fill(packed.outputs(*piece), rows.read(*piece))
    return packed


def _pieces(first: int, end: int, n_in: int, n_weights: int) -> Iterator[tuple[int, int]]:
    """The first output and the end of pieces of about so many weights."""
    step = max(1, n_weights // (n_in * PACK)) * PACK
    for at in range(first, end, step):
        yield at, min(at + step, end)


def fill(packed: PackedWeight, rows: QuantizedRows) -> None:
    """Packs as many rows as there is memory for."""
    quantized = packed.pack_format.quantized
    assert quantized is not None, "weights of bfloat16 have no codes"
    packed.weights.zero_()  # what nothing is packed to
    _pack_codes(rows.codes, packed, quantized)
    views = _Views(packed.weights, quantized, packed.n_in)
    given = [part for kind in (rows.scale, rows.least) if kind is not None for part in _parts(kind)]
    for view, factors in zip(views.factors, given, strict=True):
        view.copy_(_in_blocks(factors).transpose(1, 2))


def fill_blocks(packed: PackedWeight, rows: BlockRows, n_threads: int) -> None:
    """Packs as many rows as there is memory for, from where they lie."""
    quantized, addresses = packed.pack_format.quantized, rows.addresses.contiguous()
    assert quantized is not None, "weights of bfloat16 have no codes"
    assert quantized.planes[0] >= BITS_OF_LOW, "no form of blocks has codes of fewer bits"
    high_bits = WHOLE_BYTE if quantized.planes == (WHOLE_BYTE,) else quantized.high_bits
    first, second, third, fourth = quantized.regions(packed.n_in).factors
    pack_blocks_kernel(rows.form, high_bits).call_on_threads(
        n_threads,
        rows=addresses.data_ptr(),
        n_blocks=rows.n_blocks,
        packed=packed.weights.data_ptr(),
        stride=packed.weights.stride(0),
        first=first,
        second=second,
        third=third,
        fourth=fourth,
        n_outputs=packed.n_out,
    )


def _parts(factors: Factors) -> list[Tensor]:
    return [factors.coarse] if factors.fine is None else [factors.fine, factors.coarse]


def _pack_codes(codes: Tensor, packed: PackedWeight, quantized: QuantizedFormat) -> None:
    codes = contiguous_rows(_filled(codes, 0, -packed.n_in % quantized.unit))
    if not quantized.has_words:
        kernel = pack_bytes_kernel()
    elif quantized.planes == (8,):
        kernel = pack_words_kernel()
    else:
        kernel = pack_planes_kernel(quantized.planes[0], quantized.high_bits)
    kernel.call(
        codes.numel(),
        codes=codes.data_ptr(),
        row_stride=codes.stride(0),
        packed=packed.weights.data_ptr(),
        stride=packed.weights.stride(0),
        n_inputs=codes.shape[1],
        n_outputs=len(codes),
    )


def _codes(words: Tensor, quantized: QuantizedFormat) -> Tensor:
    """uint8 [rows, inputs] of what `_Views` says."""
    if not quantized.has_words:
        return words
    n_low = quantized.unit * quantized.planes[0] // WORD_BITS
    codes, at = torch.zeros((), dtype=torch.uint8), 0
    for bits in quantized.planes:
        own = words[:, :, :n_low] if at == 0 else words[:, :, n_low:]
        nth = torch.arange(0, BYTE_BITS, bits, dtype=torch.int32)[:, None]
        shifts = (nth + torch.arange(0, WORD_BITS, BYTE_BITS, dtype=torch.int32)).flatten()
        fields = (own[..., None] >> shifts) & ((1 << bits) - 1)
        codes = codes | fields.flatten(1).to(torch.uint8) << at
        at += bits
    return codes


def _in_blocks(x: Tensor) -> Tensor:
    """[out / PACK, PACK, ...] of [out, ...], filled up with zeros."""
    filled = _filled(x, *(0, 0) * (x.dim() - 1), 0, -len(x) % PACK)
    return filled.view(-1, PACK, *x.shape[1:])


def _filled(x: Tensor, *beside: int) -> Tensor:
    """Pads x with zeros, whose numbers `F.pad` takes; makes no copy where there are none."""
    return F.pad(x, beside) if any(beside) else x

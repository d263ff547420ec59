"""Packed weights: they are made of rows a piece at a time, and rows are read out of them again."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import contiguous_rows
from deployments.engine.kernels.cpu.pack_format import (
    BYTE_BITS,
    PackFormat,
    Planes,
    QuantizedFormat,
    Regions,
    factor_bytes,
    format_of,
    planes_of,
)
from deployments.engine.kernels.cpu.quantized.block_kernels import pack_blocks_kernel
from deployments.engine.kernels.cpu.quantized.embedding_kernels import (
    described_factor,
    described_planes,
    embedding_kernel,
)
from deployments.engine.kernels.cpu.quantized.packing_kernels import (
    pack_bytes_kernel,
    pack_planes_kernel,
    pack_words_kernel,
)
from deployments.engine.kernels.cpu.simd import PACK
from deployments.engine.quantized.block_rows import BlockRows
from deployments.engine.quantized.layout import FactorType, Layout
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

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
        return bool(self.n_in % (2 if quantized is None else quantized.planes.unit))

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
        own = [view[blocks, ..., outputs] for view in views.factors]
        factors = [
            _numbers(words, factor)[:, : quantized.n_groups(factor, self.n_in)]
            for words, factor in zip(own, quantized.factors, strict=True)
        ]
        n = len(layout.scale)
        codes = views.codes[blocks, ..., outputs]
        return QuantizedRows(
            layout.codebook,
            (_codes(codes, quantized.planes) if quantized.has_words else codes)[:, : self.n_in],
            _factors(factors[:n], layout.scale),
            _factors(factors[n:], layout.least) if layout.least else None,
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
                (offset, quantized.n_groups(factor, n_in), *described_factor(factor))
                for offset, factor in zip(offsets, quantized.factors, strict=False)
            ]
        )

    @cached_property
    def _planes(self) -> Tensor:
        quantized = self._packed.pack_format.quantized
        assert quantized is not None, "weights of bfloat16 have no codes"
        return torch.tensor(described_planes(quantized.planes))

    @cached_property
    def _described(self) -> dict[str, int]:
        """Returns the other arguments of `embedding_kernel` that stay the same."""
        quantized, weights = self._packed.pack_format.quantized, self._packed.weights
        assert quantized is not None, "weights of bfloat16 have no codes"
        return {
            "weights": weights.data_ptr(),
            "stride": weights.stride(0),
            "width": self.n_columns,
            "planes": self._planes.data_ptr(),
            "table": quantized.layout.codebook.table.data_ptr(),
            "n_factors": len(self._factors),
            "n_scales": len(quantized.layout.scale),
        }


class _Views:
    """The regions of some blocks of quantized weights.

    codes: uint8 [blocks, inputs, PACK], or int32 [blocks, units, words, PACK].
    factors: of each kind [blocks, groups, PACK], or uint8 [blocks, units, words, PACK] of planes.
    """

    def __init__(self, blocks: Tensor, quantized: QuantizedFormat, n_in: int) -> None:
        regions, planes = quantized.regions(n_in), quantized.planes
        codes = blocks[:, : planes.n_bytes(regions.n_inputs)]
        if not quantized.has_words:
            self.codes = codes.view(len(blocks), regions.n_inputs, PACK)
        else:
            self.codes = _words(codes.view(torch.int32), planes)
        self.factors = []
        for factor, at in zip(quantized.factors, regions.factors, strict=False):
            groups = quantized.n_groups(factor, n_in)
            part, own = blocks[:, at : at + factor_bytes(factor, groups)], planes_of(factor)
            if own is None:
                self.factors.append(part.view(factor.dtype).view(len(blocks), groups, PACK))
            else:
                self.factors.append(_words(part, own))


def _words(words: Tensor, planes: Planes) -> Tensor:
    """[blocks, units, words of a unit, PACK]"""
    n = planes.unit_bytes // planes.word_bytes // PACK
    return words.view(len(words), -1, n, PACK)


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
    for view, factors, kind in zip(views.factors, given, quantized.factors, strict=True):
        planes = planes_of(kind)
        codes = factors if planes is None else (factors - kind.offset).byte()
        own = _in_blocks(codes).transpose(1, 2)
        view.copy_(own if planes is None else _in_planes(own, planes))


def fill_blocks(packed: PackedWeight, rows: BlockRows, n_threads: int) -> None:
    """Packs as many rows as there is memory for, from where they lie."""
    quantized, addresses = packed.pack_format.quantized, rows.addresses.contiguous()
    assert quantized is not None, "weights of bfloat16 have no codes"
    first, second, third, fourth = quantized.regions(packed.n_in).factors
    pack_blocks_kernel(rows.form, quantized).call_on_threads(
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
    codes = contiguous_rows(_filled(codes, 0, -packed.n_in % quantized.planes.unit))
    if not quantized.has_words:
        kernel = pack_bytes_kernel()
    elif quantized.planes.low_bits == BYTE_BITS:
        kernel = pack_words_kernel()
    else:
        kernel = pack_planes_kernel(quantized.planes.low_bits, quantized.planes.high_bits)
    kernel.call(
        codes.numel(),
        codes=codes.data_ptr(),
        row_stride=codes.stride(0),
        packed=packed.weights.data_ptr(),
        stride=packed.weights.stride(0),
        n_inputs=codes.shape[1],
        n_outputs=len(codes),
    )


def _factors(parts: Sequence[Tensor], types: Sequence[FactorType]) -> Factors:
    *fine, coarse = parts
    return Factors(coarse, fine[0] if fine else None, types[0].bits)


def _numbers(words: Tensor, factor: FactorType) -> Tensor:
    """[rows, groups] of what `_Views` says, filled up."""
    planes = planes_of(factor)
    return words if planes is None else _codes(words, planes).to(factor.dtype) + factor.offset


def _codes(words: Tensor, planes: Planes) -> Tensor:
    """uint8 [rows, codes] of words [rows, units, words of a unit]"""
    codes, at = torch.zeros((), dtype=torch.uint8), 0
    for bits in planes.bits:
        own = words[:, :, : planes.low_words] if at == 0 else words[:, :, planes.low_words :]
        fields = (own[..., None] >> _first_bits(bits, planes.word_bytes)) & ((1 << bits) - 1)
        codes = codes | fields.flatten(1).to(torch.uint8) << at
        at += bits
    return codes


def _in_planes(codes: Tensor, planes: Planes) -> Tensor:
    """Codes uint8 [blocks, codes, PACK] in words of a byte: [blocks, units, words, PACK]"""
    filled = _filled(codes, 0, 0, 0, -codes.shape[1] % planes.unit)
    n_words = len(filled), filled.shape[1] // planes.unit, -1  # of each block and unit
    parts, at = [], 0
    for bits in planes.bits:
        fields = ((filled >> at) & ((1 << bits) - 1)).reshape(*n_words, BYTE_BITS // bits, PACK)
        moved = fields << _first_bits(bits, 1)[:, None]
        parts.append(moved.sum(3).byte())
        at += bits
    return torch.cat(parts, 2)


def _first_bits(bits: int, word_bytes: int) -> Tensor:
    """The first bit of each code in a word of a plane."""
    nth = torch.arange(0, BYTE_BITS, bits, dtype=torch.int32)[:, None]
    return (nth + torch.arange(0, BYTE_BITS * word_bytes, BYTE_BITS, dtype=torch.int32)).flatten()


def _in_blocks(x: Tensor) -> Tensor:
    """[out / PACK, PACK, ...] of [out, ...], filled up with zeros."""
    filled = _filled(x, *(0, 0) * (x.dim() - 1), 0, -len(x) % PACK)
    return filled.view(-1, PACK, *x.shape[1:])


def _filled(x: Tensor, *beside: int) -> Tensor:
    """Pads x with zeros, whose numbers `F.pad` takes; makes no copy where there are none."""
    return F.pad(x, beside) if any(beside) else x

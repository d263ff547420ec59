"""A quantized matrix in a GPU's memory, as its kernels read it."""

from collections.abc import Iterator
from functools import cached_property
from math import log2

import torch
from torch import Tensor, nn

from deployments.engine.kernels.gpu import quantized_ops
from deployments.engine.kernels.gpu.quantized_numbers import Coding, Factor, Scaling
from deployments.engine.kernels.gpu.quantized_ops import SLAB, Slabs
from deployments.engine.quantized.layout import E2M1, E4M3, INT8, FactorType, Layout
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight

WEIGHTS_AT_ONCE = 1 << 22  # that are read from a file
PLANES = {1: (2, 0), 2: (2, 0), 3: (2, 1), 4: (4, 0), 5: (4, 1), 6: (4, 2)}  # by bits
RUN_SIZES = (16, 32, 64)  # of groups that part a slab
MAX_OFFSET = 128  # of integers: all numbers are then exact in bfloat16
KINDS = ("float32", "float16", "bfloat16", "uint8", "int8", "float8_e4m3fn")
WORDS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}  # by bits
SIGN = 0x80  # of a byte
NAMES = ("low", "high", "coarse", "fine", "least", "fine_least")


def coding_of(layout: Layout, n_inputs: int, dtype: torch.dtype) -> Coding | None:
    """How the kernels read codes for inputs of a type; None: they can't."""
    codebook = layout.codebook
    if codebook == E4M3:
        groups = [part.group for part in (*layout.scale, *layout.least)]
        return Coding("e4m3", 8, is_natural=all(n % SLAB == 0 for n in (n_inputs, *groups)))
    offset, bits = codebook.offset, codebook.bits
    if codebook == INT8:
        return Coding("int8", 8)
    if offset is not None and abs(offset) <= MAX_OFFSET:
        if bits in PLANES:
            return Coding("integers", *PLANES[bits], offset)
        return Coding("int8", 8, 0, offset + (SIGN if bits == 8 else 0))
    factor = codebook.values[2] / E2M1.values[2] if bits == 4 else 0
    if factor > 0 and codebook.values == tuple(factor * value for value in E2M1.values):
        return Coding("e2m1", 4, 0, 0, factor) if log2(factor).is_integer() else None
    is_exact = torch.equal(codebook.table.bfloat16().float(), codebook.table)
    if not is_exact and dtype == torch.float32:
        return None
    return Coding("table", *PLANES.get(bits, (8, 0)))


def scaling_of(layout: Layout) -> Scaling | None:
    """The factors of a layout as the kernels read them; None: they can't."""
    parts = *layout.scale, *layout.least
    if None in [_factor(part) for part in parts]:
        return None
    fine, coarse = _pair(layout.scale)
    fine_least, least = _pair(layout.least)
    for outer, inner in ((coarse, fine), (least, fine_least)):
        if outer and inner and outer.size in RUN_SIZES:
            return None
    if coarse is None:
        return None
    group = min([min(part.group, SLAB) for part in parts if part.group], default=0)
    return Scaling(coarse, fine, least, fine_least, group or (SLAB if least or fine else 0))


def _pair(parts: tuple[FactorType, ...]) -> tuple[Factor | None, Factor | None]:
    """The fine factor and the coarse one."""
    found = [_factor(part) for part in parts]
    return (found[0], found[1]) if len(found) == 2 else (None, found[0] if found else None)


def _factor(part: FactorType) -> Factor | None:
    kind = str(part.dtype).removeprefix("torch.")
    fits = part.group in RUN_SIZES or part.group % SLAB == 0
    return Factor(kind, part.group) if kind in KINDS and fits else None


class SlabMatrix(nn.Module, StoredMatrix):
    """All outputs of a stored weight whose matrices have one arrangement, or one layout and an
    order of inputs for each expert. Only `SlabExperts` multiplies the latter."""

    low: Tensor
    coarse: Tensor

    @classmethod
    def can_hold(cls, weight: StoredWeight) -> bool:
        (layout,) = weight.layouts
        coding = coding_of(layout, weight.n_columns, weight.dtype)
        return coding is not None and scaling_of(layout) is not None

    def __init__(self, weight: StoredWeight, device: torch.device) -> None:
        nn.Module.__init__(self)
        n_outputs, n_columns = weight.n_outputs, weight.n_columns
        sizes = n_outputs, weight.n_inputs, weight.nbytes
        StoredMatrix.__init__(self, weight.storage_format, *sizes, weight.input_order)
        first = weight.read(0, 1)
        self._codebook, layout = first.codebook, first.layout
        coding, scaling = coding_of(layout, n_columns, weight.dtype), scaling_of(layout)
        assert coding is not None
        assert scaling is not None
        self._coding, self._scaling = coding, scaling
        self._fine_bits = [part[0].bits if part else 0 for part in (layout.scale, layout.least)]
        step = max(1, WEIGHTS_AT_ONCE // n_columns)
        for at in range(0, n_outputs, step):
            stored = weight.read(at, min(at + step, n_outputs))
            on_device = {name: part.to(device) for name, part in stored.tensors().items()}
            rows = stored.with_tensors(on_device)  # packed there: it is fast
            for name, part in self._packed(rows):
                if at == 0:
                    shape = [*part.shape[:-2], n_outputs, part.shape[-1]]
                    self.register_buffer(name, part.new_empty(shape, device=device))
                self.get_buffer(name)[..., at : at + len(rows.codes), :] = part
        table = first.codebook.table.to(device) if coding.kind == "table" else None
        self.register_buffer("table", table)
        order = _order_of(weight)
        self.register_buffer("order", None if order is None else order.to(device, torch.int32))

    @property
    def slabs(self) -> Slabs:
        """The arguments of the kernels, wherever the buffers are."""
        found = {name: self._buffers.get(name) for name in (*NAMES, "table", "order")}
        return Slabs(self.n_rows, self.n_columns, self._coding, self._scaling, **found)  # type: ignore[arg-type]

    @property
    def natural_codes(self) -> Tensor | None:
        """The codes as torch multiplies them: float8_e4m3fn [out, in]; None: they lie otherwise."""
        return self.low.view(torch.float8_e4m3fn) if self._coding.is_natural else None

    @property
    def row_scale(self) -> Tensor | None:
        """float32 [1, out], what all weights of a row are multiplied by; None: there is more."""
        is_all = self._scaling.group == 0 and self._scaling.coarse.kind == "float32"
        return self.coarse.view(torch.float32).view(1, -1) if is_all else None

    def rows(self, index: Tensor) -> QuantizedRows:
        taken = {
            name: buffer[..., index, :]
            for name in NAMES
            if (buffer := self._buffers.get(name)) is not None
        }
        low = _Plane(self._coding.low, self._coding.is_natural).codes(taken.pop("low"))
        if (high := taken.pop("high", None)) is not None:
            low |= _Plane(self._coding.high).codes(high) << self._coding.low
        if self._coding.kind == "int8" and self._codebook.bits == 8 and self._codebook != INT8:
            low ^= SIGN
        scaling = self._scaling
        numbers = {
            name: self._numbers(words, factor)
            for name, words in taken.items()
            if (factor := getattr(scaling, name)) is not None
        }
        least = numbers.get("least")
        of_scale, of_least = self._fine_bits
        return QuantizedRows(
            self._codebook,
            low[:, : self.n_columns],
            Factors(numbers["coarse"], numbers.get("fine"), of_scale),
            None if least is None else Factors(least, numbers.get("fine_least"), of_least),
        )

    def numbers(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        return quantized_ops.dequantize(self.slabs, dtype, index=index)

    def _numbers(self, words: Tensor, factor: Factor) -> Tensor:
        """The factors [rows, groups] in words [slabs or groups, rows, words]."""
        kind = getattr(torch, factor.kind)
        n_groups = self.n_columns // factor.size if factor.size else 1
        return words.transpose(0, 1).contiguous().view(kind).flatten(1)[:, :n_groups]

    def _packed(self, rows: QuantizedRows) -> Iterator[tuple[str, Tensor]]:
        codes, coding = rows.codes, self._coding
        if coding.kind == "e4m3":
            codes = codes.masked_fill(codes & 0x7F == 0x7F, 0)  # they stand for no number
        if coding.kind == "int8" and self._codebook.bits == 8 and self._codebook != INT8:
            codes = codes ^ SIGN
        yield "low", _Plane(coding.low, coding.is_natural).words(codes)
        if coding.high:
            yield "high", _Plane(coding.high).words(codes >> coding.low)
        least = rows.least
        for name, numbers in (
            ("coarse", rows.scale.coarse),
            ("fine", rows.scale.fine),
            ("least", None if least is None else least.coarse),
            ("fine_least", None if least is None else least.fine),
        ):
            if numbers is not None:
                yield name, _words(numbers, getattr(self._scaling, name))


def _order_of(weight: StoredWeight) -> Tensor | None:
    """[columns], or [experts, columns] of experts."""
    if weight.dim() == 2 or not weight.is_ordered:
        return weight.input_order
    natural = torch.arange(weight.n_inputs)
    orders = [weight.matrix(number).input_order for number in range(len(weight))]
    return torch.stack([natural if order is None else order for order in orders])


def _words(numbers: Tensor, factor: Factor) -> Tensor:
    """Factors [rows, groups] as words [slabs or groups, rows, words]."""
    padded = numbers.view(torch.uint8).view(len(numbers), -1)
    padded = nn.functional.pad(padded, (0, -padded.shape[1] % (factor.in_slab * factor.bits // 8)))
    slabs = padded.view(len(numbers), -1, factor.in_slab * factor.bits // 8).transpose(0, 1)
    return slabs.contiguous().view(WORDS[factor.in_word * factor.bits])


class _Plane:
    """Some bits of all codes, in words as the kernels read them."""

    def __init__(self, bits: int, is_natural: bool = False) -> None:
        self._bits = bits
        self._is_natural = is_natural

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """The word of each of 8 runs among those of a pair, and the first bits of its two codes."""
        run, odd = torch.arange(8)[:, None], torch.tensor([0, 16])
        if self._bits == 8:
            return run[:, 0] // 4, run % 4 // 2 * 32 + run % 2 * 8 + odd
        if self._bits == 4:
            return run[:, 0] * 0, run // 4 * 32 + run % 4 * 4 + odd
        return run[:, 0] * 0, run * self._bits + (odd if self._bits == 2 else odd // 2)

    def words(self, codes: Tensor) -> Tensor:
        """uint8 [rows, inputs] -> [slabs, rows, words], or natural [rows, words]"""
        if self._is_natural:
            return codes.contiguous().view(torch.int64)
        padded = nn.functional.pad(codes, (0, -codes.shape[1] % SLAB)) & ((1 << self._bits) - 1)
        word_of, first_bits = (places.to(codes.device) for places in self._places)
        fields = padded.view(len(codes), -1, 8, 8, 2).long() << first_bits[:, None]
        both = fields.sum(-1)  # [rows, slabs, runs, pairs]
        n_words = int(word_of.max()) + 1
        parts = [both[:, :, word_of == word].sum(2) for word in range(n_words)]
        words = torch.cat(parts, -1).transpose(0, 1)
        return words.contiguous().to(WORDS[min(64, self._bits * 16)])

    def codes(self, words: Tensor) -> Tensor:
        """The reverse: uint8 [rows, whole slabs]."""
        if self._is_natural:
            return words.contiguous().view(torch.uint8)
        word_of, first_bits = (places.to(words.device) for places in self._places)
        pairs = words.long().view(*words.shape[:2], -1, 8)[:, :, word_of]  # [..., runs, pairs]
        fields = pairs[..., None] >> first_bits[:, None] & ((1 << self._bits) - 1)
        return fields.to(torch.uint8).transpose(0, 1).flatten(1)

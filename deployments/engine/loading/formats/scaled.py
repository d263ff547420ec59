"""Weights of 8 bits with scales: FP8, and the whole numbers of W8A8.

`weight` float8_e4m3fn or int8 [outputs, inputs], and a tensor of scales, which multiply it, also
where it is named `weight_scale_inv`: one; [outputs] or [outputs, 1]; [outputs, groups]; or one for
each block of outputs and inputs, the last of which may be cut off. Experts may have a dimension
before these. Scales are of any type; bytes are exponents.

Scales of inputs (`input_scale`) say how inputs are to be rounded before products of 8 bits. They
change no weight, and are not read: a product that rounds inputs finds the scale of each token.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.packed_integers import weight_groups
from deployments.engine.loading.formats.packing import as_bytes, taken
from deployments.engine.loading.formats.parts import PartsMatrix, StoredParts, WeightParts
from deployments.engine.loading.formats.scales import Block, Scales, find_scales
from deployments.engine.quantized.layout import E4M3, INT8, Codebook
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows

Options = Mapping[str, Any]
USUAL_BLOCK = (128, 128)  # where the config says none, as modelopt's
ZEROS = "_zero_point"  # the end of the name of compressed-tensors' tensor of zeros
CODEBOOKS: Mapping[torch.dtype, tuple[str, Codebook]] = {
    torch.float8_e4m3fn: ("FP8", E4M3),
    torch.int8: ("W8A8", INT8),
}


class ScaledMatrix(PartsMatrix):
    """Codes of a byte, [..., outputs, inputs]. zeros: what is taken from each, by output."""

    def __init__(
        self, parts: WeightParts, codes: Tensor, scales: Scales, zeros: Tensor | None = None
    ) -> None:
        storage, self._codebook = CODEBOOKS[codes.dtype]
        self._codes = as_bytes(codes).flatten(0, -2)
        super().__init__(storage, parts, (len(self._codes), self._codes.shape[1]))
        self._scales = scales
        self._zeros = zeros

    def rows(self, index: Tensor) -> QuantizedRows:
        codes, scale = taken(self._codes, index), self._scales.factors(index)
        least = None
        if self._zeros is not None:
            zeros = self._scales.groups.factors(self._scales.row_factors(self._zeros, index))
            least = Factors(zeros.float().neg_().mul_(scale.float32()))
        return QuantizedRows(self._codebook, codes, scale, least)


def _read(
    parts: WeightParts, codes: str, scale: str, blocks: Sequence[object], *dtypes: torch.dtype
) -> StoredParts:
    if parts[codes].dtype not in dtypes or parts[codes].dim() < 2:
        raise parts.refusal(
            codes, f"with {parts.name}{scale}, {' or '.join(map(str, dtypes))} is read"
        )
    scales = find_scales(parts, codes, scale, [_block(size) for size in blocks if size])
    matrix = ScaledMatrix(parts, parts[codes], scales, _zeros(parts, scale, scales))
    return StoredParts(matrix, tuple(parts[codes].shape[:-1]))


def _block(size: Any) -> Block:
    if not isinstance(size, Sequence) or len(size) != 2 or not all(int(part) > 0 for part in size):
        raise UnsupportedModelError(f"a block of its weights is {size!r:.50}, and no two sizes")
    return int(size[0]), int(size[1])


def _zeros(parts: WeightParts, scale: str, scales: Scales) -> Tensor | None:
    zeros = parts.get(ZEROS)
    if zeros is None or not bool(zeros.any()):
        return None
    if zeros.shape != parts[scale].shape:
        raise parts.refusal(ZEROS, f"it should be as {parts.name}{scale}")
    return zeros.reshape(scales.tensor.shape)


def fp8_reader(codes: str, scale: str) -> Callable[[WeightParts, Options], StoredParts]:
    """Reads FP8 with scales of this name."""

    def read(parts: WeightParts, options: Options) -> StoredParts:
        blocks = [options.get("weight_block_size"), USUAL_BLOCK]
        return _read(parts, codes, scale, blocks, torch.float8_e4m3fn)

    return read


def read_compressed(parts: WeightParts, options: Options) -> StoredParts:
    """Reads `float-quantized` and `int-quantized` of compressed-tensors."""
    blocks = [group["weights"].get("block_structure") for group in weight_groups(options)]
    return _read(parts, "", "_scale", blocks, *CODEBOOKS)

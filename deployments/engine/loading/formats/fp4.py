"""Numbers of 4 bits (e2m1) in groups with a scale: MXFP4 and NVFP4.

Two share a byte, the first in its low half. MXFP4 has a power of 2 for each 32, as a byte. NVFP4
has a scale of e4m3 for each 16, and one of float32 for the whole tensor. modelopt multiplies by
the latter (`weight_scale_2`). compressed-tensors divides by it (`weight_global_scale`). It is given
as a factor, so that it is inverted here: that rounds once, by 2**-24 at the most, as in vLLM. The
exact quotients would take four bytes for each group in place of one.

gpt-oss has all experts in one tensor, `*_blocks` [experts, outputs, groups, 16], beside `*_scales`
[experts, outputs, groups]. Its parameters have inputs before outputs.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from deployments.engine.loading.formats.packing import as_bytes, fields, taken
from deployments.engine.loading.formats.parts import PartsMatrix, StoredParts, WeightParts
from deployments.engine.loading.formats.scales import as_factor, as_scale
from deployments.engine.quantized.layout import E2M1
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows

ENDS = ("_packed", "_scale", "_global_scale")  # of NVFP4 of compressed-tensors
Options = Mapping[str, Any]


class FP4Matrix(PartsMatrix):
    """packed: uint8 [..., outputs, inputs / 2]. scale: [..., outputs, groups].

    whole: float32 [experts], the factors of all weights of an expert; None: there are none.
    """

    def __init__(
        self,
        storage: str,
        parts: WeightParts,
        packed: Tensor,
        scale: Tensor,
        whole: Tensor | None = None,
    ) -> None:
        self._packed = packed.flatten(0, -2)
        n_rows, n_bytes = self._packed.shape
        super().__init__(storage, parts, (n_rows, 2 * n_bytes))
        self._scale = scale.flatten(0, -2)
        self._whole = whole

    def rows(self, index: Tensor) -> QuantizedRows:
        codes = fields(taken(self._packed, index), 4)
        scale = as_factor(taken(self._scale, index)).contiguous()
        if self._whole is None:
            return QuantizedRows(E2M1, codes, Factors(scale))
        expert = index // (self.n_rows // len(self._whole))
        return QuantizedRows(E2M1, codes, Factors(self._whole[expert][:, None], scale))


def read_gpt_oss(parts: WeightParts, options: Options) -> StoredParts:
    blocks, scales = parts["_blocks"], parts["_scales"]
    if blocks.dim() != 4 or blocks.dtype != torch.uint8 or blocks.shape[-1] != 16:
        raise parts.refusal("_blocks", "it should be uint8 [experts, outputs, groups, 16]")
    _check_scales(parts, "_scales", blocks.shape[:-1])
    matrix = FP4Matrix("MXFP4", parts, blocks.flatten(-2), as_scale(scales))
    return StoredParts(matrix, tuple(blocks.shape[:2]), is_transposed=True)


def read_mxfp4(parts: WeightParts, options: Options) -> StoredParts:
    """Reads compressed-tensors' `mxfp4-pack-quantized`."""
    packed = _packed(parts, "_packed", "_scale", 32)
    matrix = FP4Matrix("MXFP4", parts, packed, as_scale(parts["_scale"]))
    return StoredParts(matrix, tuple(packed.shape[:-1]))


def read_nvfp4(parts: WeightParts, options: Options) -> StoredParts:
    """Reads compressed-tensors' `nvfp4-pack-quantized`."""
    return _nvfp4(parts, "_packed", 1 / _whole(parts, "_global_scale"))


def read_modelopt(parts: WeightParts, options: Options) -> StoredParts:
    """Reads modelopt's NVFP4."""
    return _nvfp4(parts, "", _whole(parts, "_scale_2"))


def _nvfp4(parts: WeightParts, codes: str, whole: Tensor) -> StoredParts:
    packed = _packed(parts, codes, "_scale", 16)
    scale = parts["_scale"]
    if scale.dtype != torch.float8_e4m3fn:
        raise parts.refusal("_scale", "it should be float8_e4m3fn")
    n_matrices = torch.Size(packed.shape[:-2]).numel()
    if len(whole) not in (1, n_matrices):
        raise parts.refusal("_scale", f"{len(whole)} scales of {n_matrices} matrices are there")
    matrix = FP4Matrix("NVFP4", parts, packed, scale, whole)
    return StoredParts(matrix, tuple(packed.shape[:-1]))


def _whole(parts: WeightParts, end: str) -> Tensor:
    """The scale of a whole tensor, or of each expert: float32 [n]."""
    scale = parts[end].float().flatten()
    if not bool((scale > 0).all() & scale.isfinite().all()):
        raise parts.refusal(end, "it should be larger than 0")
    return scale


def _packed(parts: WeightParts, codes: str, scale: str, group: int) -> Tensor:
    packed = parts[codes]
    if packed.dtype not in (torch.uint8, torch.int8) or packed.dim() < 2:
        raise parts.refusal(codes, "it should be bytes of two weights")
    _check_scales(parts, scale, (*packed.shape[:-1], packed.shape[-1] * 2 // group))
    return as_bytes(packed)


def _check_scales(parts: WeightParts, end: str, shape: tuple[int, ...]) -> None:
    if parts[end].shape != shape or parts[end].element_size() != 1:
        raise parts.refusal(end, f"there should be {[*shape]} scales of a byte")

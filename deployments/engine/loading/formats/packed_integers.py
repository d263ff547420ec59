"""compressed-tensors' `pack-quantized`: whole numbers, packed along inputs.

`weight_packed` int32 [outputs, inputs * bits / 32], lowest first; `weight_scale` [outputs, groups];
`weight_shape` [2], as rows may be filled up. Symmetric codes are moved by half of their number.
Others have `weight_zero_point` int32 [outputs * bits / 32, groups], packed along outputs, where
they are moved as well. `weight_g_idx` [inputs] is the group of each input, or -1.

How large groups are is seen from the shapes, as modules may differ.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from deployments.engine.loading.formats.groups import even_groups, groups_of
from deployments.engine.loading.formats.integers import (
    IntegerMatrix,
    check_matrix,
    check_scales,
    group_ids,
    n_bits,
)
from deployments.engine.loading.formats.packing import as_bytes, fields, taken
from deployments.engine.loading.formats.parts import StoredParts, WeightParts

ENDS = ("_packed", "_scale", "_zero_point", "_shape", "_g_idx")


class PackedIntegerMatrix(IntegerMatrix):
    def __init__(self, parts: WeightParts, said_bits: object) -> None:
        check_matrix(parts, "_packed", "_scale")
        n_outputs, n_inputs = (int(size) for size in parts["_shape"].tolist())
        n_packed, n_words = parts["_packed"].shape
        if n_packed != n_outputs:
            raise parts.refusal("_packed", f"there should be {n_outputs} rows")
        check_scales(parts, "_scale", n_outputs, 0)
        bits = n_bits(parts, "_packed", n_words, n_inputs, said_bits)
        n_groups = parts["_scale"].shape[1]
        zeros = parts.get("_zero_point")
        if zeros is not None and zeros.shape != (-(-n_outputs * bits // 32), n_groups):
            raise parts.refusal("_zero_point", "it should be packed along outputs")
        ids = group_ids(parts, "_g_idx", n_inputs, n_groups)
        groups = (
            groups_of(ids) if ids is not None else even_groups(n_inputs, -(-n_inputs // n_groups))
        )
        super().__init__(f"W{bits}A16", parts, (n_outputs, n_inputs), bits, groups)

    def _codes(self, index: Tensor) -> Tensor:
        packed = taken(self.parts["_packed"], index)
        return fields(as_bytes(packed), self.bits)[:, : self.n_inputs]

    def _scales(self, index: Tensor) -> Tensor:
        return taken(self.parts["_scale"], index)

    def _zeros(self, index: Tensor) -> Tensor:
        packed = self.parts.get("_zero_point")
        if packed is None:
            n_groups = self.parts["_scale"].shape[1]
            return torch.full((len(index), n_groups), 1 << self.bits - 1, dtype=torch.uint8)
        zeros = fields(as_bytes(packed.t()), self.bits)[:, : self.n_rows]
        return taken(zeros, index, 1).t()


def read_packed_integers(parts: WeightParts, options: Mapping[str, Any]) -> StoredParts:
    said = {group["weights"].get("num_bits") for group in weight_groups(options)}
    matrix = PackedIntegerMatrix(parts, said.pop() if len(said) == 1 else None)
    return StoredParts(matrix, (matrix.n_rows,))


def weight_groups(options: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The groups of modules of a config whose weights are quantized."""
    groups = (options.get("config_groups") or {}).values()
    return [group for group in groups if isinstance(group.get("weights"), Mapping)]

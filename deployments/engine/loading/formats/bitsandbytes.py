"""bitsandbytes: 4 bits by a table (nf4, fp4), or int8 with a scale for each output.

4 bits: `weight` uint8 [weights / 2, 1], the first of each two in the high half, in blocks that
follow each other. `weight.absmax` is the scale of each block, `weight.quant_map` the table. Scales
may be codes of a byte themselves: their table is `weight.nested_quant_map`, and
`weight.nested_absmax` the scale of each block of them. To these an offset is added.
`weight.quant_state.bitsandbytes__*` is JSON that says shapes.

int8: `weight` [outputs, inputs] and `SCB` [outputs], 127 times the scales.
"""

import json
from collections.abc import Mapping
from math import gcd
from typing import Any

import torch
from torch import Tensor

from deployments.engine.loading.formats.groups import even_groups
from deployments.engine.loading.formats.packing import taken
from deployments.engine.loading.formats.parts import PartsMatrix, StoredParts, WeightParts
from deployments.engine.loading.formats.scaled import ScaledMatrix
from deployments.engine.loading.formats.scales import Scales
from deployments.engine.quantized.layout import Codebook
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows

STATES = (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4")
ENDS = ("", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", *STATES)
INT8_ENDS = (".weight", ".SCB", ".weight_format")


class TableMatrix(PartsMatrix):
    """A matrix of codes of 4 bits. state: the JSON of the file."""

    def __init__(self, parts: WeightParts, state: Mapping[str, Any]) -> None:
        n_rows, n_inputs = (int(size) for size in state["shape"])
        block = int(state["blocksize"])
        packed = parts[""]
        if packed.numel() * 2 != n_rows * n_inputs or n_inputs % 2:
            raise parts.refusal("", f"it should be [{n_rows}, {n_inputs}] with two in a byte")
        name = str(state["quant_type"])
        super().__init__(name, parts, (n_rows, n_inputs))
        self._codebook = Codebook(name, tuple(parts[".quant_map"].float().tolist()))
        self._packed = packed.view(n_rows, n_inputs // 2)
        self._state = state
        self._firsts = torch.arange(0, n_inputs, gcd(block, n_inputs))  # of groups

    def rows(self, index: Tensor) -> QuantizedRows:
        packed = taken(self._packed, index)
        codes = torch.stack([packed >> 4, packed & 15], -1).flatten(-2)
        first = index[:, None] * self.n_inputs + self._firsts  # a block may end within a row
        scale = _scales(self.parts, self._state, first // int(self._state["blocksize"]))
        return QuantizedRows(self._codebook, codes, Factors(scale))


def _scales(parts: WeightParts, state: Mapping[str, Any], block: Tensor) -> Tensor:
    """float32 of the numbers of blocks"""
    scales = parts[".absmax"][block]
    if scales.dtype == torch.float32:
        return scales
    outer = parts[".nested_absmax"][block // int(state["nested_blocksize"])]
    values = parts[".nested_quant_map"].float()[scales.int()]
    return values * outer + float(state["nested_offset"])


def read_table(parts: WeightParts, options: Mapping[str, Any]) -> StoredParts:
    found = next((parts[end] for end in STATES if parts.get(end) is not None), None)
    if found is None:
        raise parts.refusal("", f"its files lack {parts.name}{STATES[0]}")
    matrix = TableMatrix(parts, json.loads(bytes(found.tolist())))
    return StoredParts(matrix, (matrix.n_rows,))


def read_int8(parts: WeightParts, options: Mapping[str, Any]) -> StoredParts:
    codes, scale = parts[".weight"], parts[".SCB"]
    if codes.dtype != torch.int8 or codes.dim() != 2 or scale.shape != codes.shape[:1]:
        raise parts.refusal(".weight", "it should be an int8 matrix with a scale for each output")
    n_outputs, n_inputs = codes.shape
    groups = even_groups(n_inputs, n_inputs)
    scales = Scales((scale.float() / 127)[:, None], groups, n_outputs, n_outputs, 1)
    return StoredParts(ScaledMatrix(parts, codes, scales), (n_outputs,))

"""AWQ in its form `gemm`: codes of 4 bits, packed along outputs.

`qweight` int32 [inputs, outputs / 8], `qzeros` int32 [groups, outputs / 8], `scales` [groups,
outputs]. The lowest 4 bits of a word are of its output 0, the next ones of its output 2: see ORDER.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from deployments.engine.loading.formats.groups import even_groups
from deployments.engine.loading.formats.integers import IntegerMatrix, check_matrix, check_scales
from deployments.engine.loading.formats.packing import as_bytes, fields, taken
from deployments.engine.loading.formats.parts import StoredParts, WeightParts

ENDS = (".qweight", ".qzeros", ".scales")
BITS = 4
PER_WORD = 32 // BITS
ORDER = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # the output of each field of a word
FIELD = torch.argsort(ORDER)  # of each output


class AWQMatrix(IntegerMatrix):
    def __init__(self, parts: WeightParts) -> None:
        check_matrix(parts, *ENDS)
        n_inputs, n_words = parts[".qweight"].shape
        n_outputs, n_groups = n_words * PER_WORD, len(parts[".scales"])
        check_scales(parts, ".scales", n_outputs, 1)
        for end, shape in {".qweight": (n_inputs, n_words), ".qzeros": (n_groups, n_words)}.items():
            if parts[end].dtype != torch.int32 or parts[end].shape != shape:
                raise parts.refusal(end, f"it should be int32 {[*shape]}")
        if n_inputs % n_groups:
            raise parts.refusal(".scales", f"{n_inputs} inputs should have groups of one size")
        groups = even_groups(n_inputs, n_inputs // n_groups)
        super().__init__("AWQ", parts, (n_outputs, n_inputs), BITS, groups)

    def _codes(self, index: Tensor) -> Tensor:
        return _outputs(self.parts[".qweight"], index).contiguous()

    def _scales(self, index: Tensor) -> Tensor:
        return taken(self.parts[".scales"], index, 1).t()

    def _zeros(self, index: Tensor) -> Tensor:
        return _outputs(self.parts[".qzeros"], index)


def _outputs(packed: Tensor, index: Tensor) -> Tensor:
    """The codes of some outputs in words [n, outputs / 8]: uint8 [outputs, n]."""
    if len(index) == 0:
        return packed.new_zeros(0, len(packed), dtype=torch.uint8)
    first, last = int(index.min()) // PER_WORD, int(index.max()) // PER_WORD
    codes = fields(as_bytes(packed[:, first : last + 1]), BITS)
    places = index - first * PER_WORD
    return codes.t()[places // PER_WORD * PER_WORD + FIELD[places % PER_WORD]]


def read_awq(parts: WeightParts, options: Mapping[str, Any]) -> StoredParts:
    matrix = AWQMatrix(parts)
    return StoredParts(matrix, (matrix.n_rows,))

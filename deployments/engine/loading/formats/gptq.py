"""GPTQ: codes of 2, 3, 4 or 8 bits, packed along inputs.

`qweight` int32 [inputs * bits / 32, outputs], `qzeros` int32 [groups, outputs * bits / 32],
`scales` [groups, outputs], and `g_idx` [inputs], the group of each input. Where it was made by
`desc_act`, neighbours are in different groups.

Files of the format `gptq` store each zero less 1, those of `gptq_v2` as it is. 1 was taken from all
zeros of a word at once, so that a zero of 0 has borrowed from the next one: it is added again in
the same way. Some files that say the first format mean the second: symmetric ones whose zeros are
all the middle of the codes.

Modules may have other bits and groups than the config says, by `dynamic` or `extra_config`. Their
tensors' shapes say both, so that no name has to be matched.
"""

from collections.abc import Mapping
from typing import Any

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

ENDS = (".qweight", ".qzeros", ".scales", ".g_idx")


class GPTQMatrix(IntegerMatrix):
    """is_less_1: the zeros are in the file."""

    def __init__(
        self, parts: WeightParts, said_bits: object, is_less_1: bool, symmetric: bool
    ) -> None:
        check_matrix(parts, ".qweight", ".qzeros", ".scales")
        n_words, n_outputs = parts[".qweight"].shape
        check_scales(parts, ".scales", n_outputs, 1)
        n_groups = len(parts[".scales"])
        bits = n_bits(parts, ".qzeros", parts[".qzeros"].shape[1], n_outputs, said_bits)
        n_inputs = n_words * 32 // bits
        ids = group_ids(parts, ".g_idx", n_inputs, n_groups)
        groups = (
            groups_of(ids) if ids is not None else even_groups(n_inputs, -(-n_inputs // n_groups))
        )
        super().__init__(f"GPTQ int{bits}", parts, (n_outputs, n_inputs), bits, groups)
        self._is_less_1 = is_less_1
        self._symmetric = symmetric

    def _codes(self, index: Tensor) -> Tensor:
        return fields(as_bytes(taken(self.parts[".qweight"], index, 1).t()), self.bits)

    def _scales(self, index: Tensor) -> Tensor:
        return taken(self.parts[".scales"], index, 1).t()

    def _zeros(self, index: Tensor) -> Tensor:
        words = self.parts[".qzeros"]
        stored = fields(as_bytes(words), self.bits)[:, : self.n_rows]
        is_as_it_is = self._symmetric and bool((stored == 1 << self.bits - 1).all())
        if self._is_less_1 and not is_as_it_is:
            stored = self._plus_1(words)[:, : self.n_rows]
        return taken(stored, index, 1).t()

    def _plus_1(self, words: Tensor) -> Tensor:
        if self.bits == 3:  # which are not all within a word
            return fields(as_bytes(words), 3) + 1 & 7
        ones = sum(1 << place for place in range(0, 32, self.bits))
        return fields(as_bytes((words.long() + ones).int()), self.bits)


def read_gptq(parts: WeightParts, options: Mapping[str, Any]) -> StoredParts:
    is_v2 = options.get("checkpoint_format", options.get("format")) == "gptq_v2"
    symmetric = bool(options.get("sym", True))
    matrix = GPTQMatrix(parts, options.get("bits"), not is_v2, symmetric)
    return StoredParts(matrix, (matrix.n_rows,))


def read_gptq_v2(parts: WeightParts, options: Mapping[str, Any]) -> StoredParts:
    return read_gptq(parts, {**options, "checkpoint_format": "gptq_v2"})

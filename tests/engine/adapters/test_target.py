"""Matrices packed for the CPU's kernels add what plain ones add, whatever tokens a step has."""

import numpy as np
import pytest
import torch

from deployments.engine.forward.adapters.packed_target import PackedTarget, can_be_packed
from deployments.engine.forward.adapters.rows import AdapterRows
from deployments.engine.forward.adapters.target import LoraLayerWeights, Target
from tests.adapters import step_with_adapters

N_IN, N_OUTS, N_SLOTS = 32, (40, 8), 5
LIKE = torch.empty(0, dtype=torch.bfloat16)


@pytest.mark.skipif(not can_be_packed(N_IN, LIKE), reason="this processor has no such kernels")
@pytest.mark.parametrize(
    ("slots", "new_len"),
    [
        ([1], [1]),
        ([3, 0, 1, 3, 5], [1, 1, 1, 1, 1]),
        ([0, 2, 4, 2], [3, 90, 1, 1]),  # filled up, the slots would have six times the tokens
    ],
)
def test_packed_is_plain(slots: list[int], new_len: list[int]) -> None:
    torch.manual_seed(0)
    packed = PackedTarget(N_IN, N_OUTS, N_SLOTS, 9)
    plain = Target(N_IN, N_OUTS, N_SLOTS, 9, torch.empty(0))
    for slot in range(1, N_SLOTS + 1):
        for part, n_out in enumerate(N_OUTS):
            for rank in (2, 7)[: slot % 3]:
                a, b = torch.randn(rank, N_IN).bfloat16(), torch.randn(n_out, rank).bfloat16()
                for target in (packed, plain):
                    target.append(slot, part, LoraLayerWeights(a, b, 1.0), 0.5)
    for target in (packed, plain):
        target.clear(5)
    x, out = torch.randn(sum(new_len), N_IN).bfloat16(), torch.randn(sum(new_len), sum(N_OUTS))
    rows = AdapterRows.from_step(step_with_adapters(slots, new_len), N_SLOTS, torch.device("cpu"))
    expected, found = out.clone(), out.bfloat16()
    plain.add_(expected, x.float(), rows)
    packed.add_(found, x, rows)
    torch.testing.assert_close(found.float(), expected, atol=0.2, rtol=0.02)
    has_none = torch.from_numpy(np.repeat(np.array(slots), new_len) == 0)
    assert torch.equal(found[has_none], out.bfloat16()[has_none])
    assert torch.equal(expected[has_none], out[has_none])

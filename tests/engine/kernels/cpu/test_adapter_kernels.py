"""Products with packed adapters are those of plain matrices, and go by their own token alone."""

import pytest
import torch
from torch import Tensor

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import adapter_ops
from deployments.engine.kernels.cpu.adapter_ops import PackedAdapters, Segments

N_IN, OUTS = 34, [slice(0, 40), slice(40, 50), slice(50, 123)]
MAX_RANK = 256  # that a preset may allow
RANKS = ((3, 4), (16, 17, 1), (), (32,))  # of what stands side by side in each slot
SEGMENTS = torch.tensor([[0, 0, 1], [1, 1, 12], [3, 12, 14]])
TOKENS = torch.tensor([9, *range(10, 21), 3, 0])
OTHERS = torch.tensor([i for i in range(21) if i not in TOKENS])
# With room that this step does not need: what stands there is not read.
ALL = Segments(
    torch.cat([TOKENS, torch.tensor([7, 1 << 40])]),
    torch.cat([SEGMENTS, torch.tensor([[0, 0, 0], [2, 0, 1]])]),
    torch.cat([OTHERS, torch.tensor([-1, 20])]),
)


def bfloat16(*shape: int) -> Tensor:
    return torch.randn(*shape).bfloat16()


def filled() -> tuple[PackedAdapters, dict[tuple[int, int], Tensor]]:
    """Packed adapters, and by slot and part the matrix that they come to."""
    torch.manual_seed(1)
    packed = adapter_ops.empty_adapters(N_IN, OUTS, len(RANKS), 48)
    matrices: dict[tuple[int, int], Tensor] = {}
    for slot, ranks in enumerate(RANKS):
        for part, outs in enumerate(OUTS):
            matrix = torch.zeros(outs.stop - outs.start, N_IN)
            for rank in ranks if (slot, part) != (1, 2) else ():
                a, b = bfloat16(rank, N_IN), bfloat16(len(matrix), rank)
                adapter_ops.put(packed, slot, part, a, b)
                matrix += b.float() @ a.float()
            matrices[slot, part] = matrix
    return packed, matrices


def test_what_is_added_is_the_product() -> None:
    packed, matrices = filled()
    x, out = bfloat16(21, N_IN), bfloat16(21, OUTS[-1].stop)
    expected = out.float()
    for slot, begin, end in SEGMENTS.tolist():
        for part, outs in enumerate(OUTS):
            own = TOKENS[begin:end]
            expected[own, outs] += x[own].float() @ matrices[slot, part].t()
    before = out.clone()
    adapter_ops.add_(packed, out, x, ALL)
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.01)
    assert torch.equal(out[OTHERS], before[OTHERS])


def test_the_largest_rank_is_the_product() -> None:
    torch.manual_seed(3)
    rank = MAX_RANK
    packed = adapter_ops.empty_adapters(N_IN, OUTS, len(RANKS), rank)
    x, out = bfloat16(21, N_IN), bfloat16(21, OUTS[-1].stop)
    expected = out.float()
    for slot, begin, end in SEGMENTS.tolist():
        own = TOKENS[begin:end]
        for part, outs in enumerate(OUTS):
            a, b = bfloat16(rank, N_IN), bfloat16(outs.stop - outs.start, rank) / rank**0.5
            adapter_ops.put(packed, slot, part, a, b)
            expected[own, outs] += x[own].float() @ a.float().t() @ b.float().t()
    adapter_ops.add_(packed, out, x, ALL)
    torch.testing.assert_close(out.float(), expected, atol=0.1, rtol=0.01)


def test_a_token_beside_others_has_the_bits_that_it_has_alone() -> None:
    packed, _ = filled()
    x, out = bfloat16(21, N_IN), bfloat16(21, OUTS[-1].stop)
    alone = out.clone()
    adapter_ops.add_(packed, out, x, ALL)
    for slot, begin, end in SEGMENTS.tolist():
        for token in TOKENS[begin:end].tolist():
            one = Segments(torch.tensor([token]), torch.tensor([[slot, 0, 1]]), OTHERS)
            adapter_ops.add_(packed, alone, x, one)
    assert torch.equal(out, alone)


@pytest.mark.parametrize("activation", GateActivation)
def test_what_is_added_to_a_gate_is_added_before_it_is_activated(
    activation: GateActivation,
) -> None:
    torch.manual_seed(2)
    width = 70
    packed = adapter_ops.empty_adapters(N_IN, [slice(0, width), slice(width, 2 * width)], 4, 16)
    x, gate, up = bfloat16(21, N_IN), bfloat16(21, width), bfloat16(21, width)
    expected = [gate.float(), up.float()]
    for slot, begin, end in SEGMENTS.tolist():
        for part in range(2 if slot else 1):  # the first adapter changes the gate alone
            a, b = bfloat16(5, N_IN), bfloat16(width, 5)
            adapter_ops.put(packed, slot, part, a, b)
            own = TOKENS[begin:end]
            expected[part][own] += x[own].float() @ a.float().t() @ b.float().t()
    adapter_ops.activate_(packed, gate, up, x, ALL, activation)
    torch.testing.assert_close(
        gate.float(), activation(expected[0]) * expected[1], atol=0.05, rtol=0.01
    )

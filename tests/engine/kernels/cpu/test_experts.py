"""Experts in one kernel: near the loop over them, and a token's bits are those of it alone."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.kernels.cpu.experts.expert_matrices import ExpertMatrices
from deployments.engine.kernels.cpu.experts.expert_ops import routed
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.kernels.cpu.pack_format import format_of
from deployments.engine.kernels.cpu.packed_weight import pack
from deployments.engine.kernels.experts import ExpertActivation
from tests.engine.kernels.cpu.test_quantized_products import LAYOUTS, packed
from tests.engine.quantized.made import rows_of

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
N_EXPERTS, N_IN, N_BETWEEN, N_OUT = 5, 512, 256, 75
ULP = 2**-7  # of bfloat16, relative
Experts = Callable[[Tensor, Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def some(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


def filled(shape: tuple[int, int, int, int], name: str | None) -> tuple[ExpertMatrices, Tensor]:
    """Matrices of a layout, or of bfloat16, and their numbers [experts, parts, out, in]."""
    n_experts, n_parts, n_out, n_in = shape
    bias = None if name else some(n_experts, n_parts, n_out)
    matrices = ExpertMatrices(shape, format_of(LAYOUTS[name]) if name else None, bias)
    numbers = torch.empty(shape)
    for expert in range(n_experts):
        for part in range(n_parts):
            if name is None:
                own = some(n_out, n_in)
                matrices.fill(expert, part, pack(own))
                numbers[expert, part] = own
            else:
                rows = rows_of(LAYOUTS[name], (n_out, n_in), seed=n_parts * expert + part)
                matrices.fill(expert, part, packed(rows))
                numbers[expert, part] = rows.dequantize()
    return matrices, numbers


def experts_of(name: str | None, width: int = N_BETWEEN) -> tuple[Experts, Experts]:
    """Makes what the kernel computes, and what a loop over experts does."""
    first, wide = filled((N_EXPERTS, 2, width, N_IN), name)
    down, narrow = filled((N_EXPERTS, 1, N_OUT, width), name)
    # Sums that are as large as those of a model.
    shrink = 1 / wide.std().item() / N_IN**0.5

    def expected(x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        out = torch.zeros(len(x), N_OUT)
        for token, nth in torch.nonzero(index < N_EXPERTS).tolist():
            expert = index[token, nth]
            gate, up = (wide[expert] @ x[token].float()).unbind(0)
            if first.bias is not None:
                gate, up = gate + first.bias[expert, 0], up + first.bias[expert, 1]
            between = (F.silu(gate) * up).bfloat16().float()
            answer = narrow[expert, 0] @ between
            if down.bias is not None:
                answer += down.bias[expert, 0]
            out[token] += weights[token, nth].float() * answer
        return out

    def computed(x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        return routed(x, index, weights, first, down, ExpertActivation())

    return (
        lambda x, index, weights: computed((x * shrink).bfloat16(), index, weights),
        lambda x, index, weights: expected((x * shrink).bfloat16(), index, weights),
    )


def choices(n_tokens: int, k: int, n_experts: int = N_EXPERTS) -> Tensor:
    return torch.stack([torch.randperm(n_experts)[:k] for _ in range(n_tokens)])


def near(found: Tensor, expected: Tensor) -> None:
    """The loop rounds what is between both products, too, but of another sum."""
    most = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=ULP, atol=most * 2**-8)


@pytest.mark.parametrize("name", [None, *LAYOUTS])
def test_tokens_of_experts(name: str | None) -> None:
    """A token's bits are the same whatever stands beside it. The fourth expert is chosen by none,
    and some choose fewer than others."""
    computed, expected = experts_of(name)
    x, weights = some(40, N_IN), torch.rand(40, 3)
    index = choices(40, 3, n_experts=4)
    index[index == 3] = N_EXPERTS  # which is none
    together = computed(x, index, weights)
    near(together, expected(x, index, weights))
    for n in (1, 2, 5, 8, 9, 17):
        assert torch.equal(computed(x[:n], index[:n], weights[:n]), together[:n])
    order = torch.randperm(40)
    assert torch.equal(computed(x[order], index[order], weights[order]), together[order])


@pytest.mark.parametrize("k", range(1, N_EXPERTS + 1))
def test_any_number_of_experts(k: int, threads: Callable[[int], None]) -> None:
    """Neither the order of experts nor the number of threads changes a bit. Widths are no whole
    blocks."""
    computed, expected = experts_of(None, width=83)
    x, index, weights = some(6, N_IN), choices(6, k), torch.rand(6, k).bfloat16()
    found = computed(x, index, weights)
    near(found, expected(x, index, weights))
    assert torch.equal(computed(x, index.flip(1), weights.flip(1)), found)
    for n in (1, 3):
        threads(n)
        assert torch.equal(computed(x, index, weights), found)


@pytest.mark.parametrize("name", [None, "Q8_0"])
def test_all_choose_one_expert(name: str | None) -> None:
    """They are more than are multiplied with a block one after the other."""
    computed, expected = experts_of(name)
    x, index, weights = some(300, N_IN), torch.full((300, 1), 2), torch.ones(300, 1)
    found = computed(x, index, weights)
    near(found, expected(x, index, weights))
    assert torch.equal(computed(x[290:], index[290:], weights[290:]), found[290:])
    assert not computed(x, torch.full_like(index, -1), weights).any()
    assert computed(x[:0], index[:0], weights[:0]).shape == (0, N_OUT)

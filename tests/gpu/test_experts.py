"""Experts and routers on a GPU keep the laws that interpreted ones keep."""

from dataclasses import replace

import pytest
import torch

from deployments.engine.forward.cuda_graphs import CudaGraphCapture
from deployments.engine.kernels.experts import SIGMOID, SOFTMAX, Routing
from tests.engine.kernels.gpu.experts import Sparse, answered, taken, wrong_blocks, wrong_routes
from tests.engine.kernels.gpu.paged import DTYPES
from tests.engine.kernels.gpu.test_expert_kernels import CASES, ROUTINGS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ROUTED = {
    **ROUTINGS,
    "Qwen3": (Routing(8, SOFTMAX, is_normed=True), 128, False),
    "DeepSeek V3": (Routing(8, SIGMOID, n_groups=8, n_chosen_groups=4, factor=2.5), 256, True),
    "Qwen3-Next": (Routing(10, SOFTMAX, is_normed=True), 512, False),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 9, 40, 300, 1500])
@pytest.mark.parametrize("name", CASES)
def test_experts_answer_as_a_loop_over_them(name: str, tokens: int, dtype: str) -> None:
    case = replace(CASES[name], tokens=tokens, dtype=dtype)
    found, differing = answered(case, "cuda")
    assert found < DTYPES[dtype]
    assert differing == [] or dtype != "float32"


@pytest.mark.parametrize(
    ("tokens", "k", "n_experts"), [(64, 8, 128), (2048, 8, 128), (900, 10, 512)]
)
def test_tokens_are_grouped_by_experts(tokens: int, k: int, n_experts: int) -> None:
    assert wrong_blocks(tokens, k, n_experts, "cuda") == []


@pytest.mark.parametrize("name", ROUTED)
def test_experts_are_chosen_as_by_torch(name: str) -> None:
    assert wrong_routes(*ROUTED[name], 300, "cuda") == []


@pytest.mark.parametrize("tokens", [1, 8, 300])
def test_experts_are_captured(tokens: int) -> None:
    """Other experts may be chosen than those at the capture."""
    experts = taken(Sparse(dtype="bfloat16", n_experts=16), "cuda")
    x = torch.randn(tokens, 48, device="cuda", dtype=torch.bfloat16)
    index = torch.zeros(tokens, 2, dtype=torch.int64, device="cuda")
    weights, out = torch.rand(tokens, 2, device="cuda"), torch.empty_like(x)

    def run() -> None:
        out.copy_(experts(x, index, weights))

    with torch.inference_mode():
        replay = CudaGraphCapture()(run)
        for _ in range(3):
            index.random_(0, 17)
            replay()
            assert torch.equal(out, experts(x, index, weights))

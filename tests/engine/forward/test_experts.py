"""The experts and routers of transformers' models, by kernels of ours on a CPU."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DeepseekV3Config, NemotronHConfig, PretrainedConfig

from deployments.engine.forward.module import Module
from deployments.engine.forward.products.experts import IMPLEMENTATION, are_replaceable
from deployments.engine.forward.products.routed_experts import pack_experts, packable_activation
from deployments.engine.forward.products.router import ExpertRouter, known_routing
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.quantized.layout import Layout
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.forward.test_decoder import FUSED
from tests.engine.kernels.cpu.test_quantized_products import LAYOUTS
from tests.engine.quantized.made import MadeMatrix, rows_of
from tests.models import CONFIGS, SIZES

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
ULP = 2**-7  # of bfloat16, relative
HIDDEN = CONFIGS["qwen3_moe"]().hidden_size
GROUPS = {"n_group": 4, "topk_group": 2, "n_routed_experts": 16, "num_experts_per_tok": 3}
SPARSE: dict[str, Callable[[], PretrainedConfig]] = {
    **{name: CONFIGS[name] for name in ("qwen3_moe", "gpt_oss", "phimoe", "deepseek_v3")},
    **{
        name: lambda name=name: deepcopy(FUSED[name])  # type: ignore[misc]
        for name in ("granitemoe", "glm4_moe", "dots1", "exaone_moe", "solar_open")
    },
    "groups": lambda: DeepseekV3Config(**{**CONFIGS["deepseek_v3"]().to_dict(), **GROUPS}),
    "nemotron_h": lambda: NemotronHConfig(
        **{**SIZES, "num_hidden_layers": 2},
        layers_block_type=["moe", "attention"],
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        moe_shared_expert_intermediate_size=32,
    ),
}
UNKNOWN = ("phimoe",)  # whose router draws the line between experts by itself


def sparse_part(name: str) -> Any:
    """A layer's experts and what is beside them, with random weights of bfloat16."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(SPARSE[name](), dtype=torch.bfloat16).eval()
    (found, *_) = (
        module for module in model.modules() if any(map(are_replaceable, module.children()))
    )
    for weight in found.parameters():
        nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    for buffer in found.buffers():  # which correct scores
        nn.init.normal_(buffer, std=0.1)
    return found


def pack(experts: Any) -> None:
    """Packs them as those of a model."""
    activation = packable_activation(experts)
    assert activation is not None
    pack_experts(experts, activation, lambda weight: None)
    experts.config._experts_implementation = IMPLEMENTATION


def router_of(part: Any) -> Module:
    router: Module = part.gate if hasattr(part, "gate") else part.router
    return router


@torch.inference_mode()
@pytest.mark.parametrize("name", SPARSE)
def test_experts_of_a_family(name: str) -> None:
    """Packed ones compute nearly what they themselves compute in float32."""
    part = sparse_part(name)
    experts, wide = part.experts, deepcopy(part.experts).float()
    n = experts.num_experts
    x = torch.randn(23, HIDDEN).bfloat16()
    index = torch.stack([torch.randperm(n)[:2] for _ in x])
    weights = torch.rand(index.shape).bfloat16()
    expected = type(wide).forward.__wrapped__(wide, x.float(), index, weights.float())
    pack(experts)
    found = experts(x, index, weights)
    most = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=ULP, atol=most * ULP)
    assert torch.equal(experts(x[4:5], index[4:5], weights[4:5]), found[4:5])


@torch.no_grad()
@pytest.mark.parametrize("layout", [None, LAYOUTS["Q4_0"], LAYOUTS["int8"]])
def test_shares_of_widths_add_up(layout: Layout | None) -> None:
    """Ranks have such shares. They may cut groups of weights that have one scale."""
    experts = sparse_part("qwen3_moe").experts
    if layout is not None:
        for name in ("gate_up_proj", "down_proj"):
            shape = getattr(experts, name).shape
            rows = rows_of(layout, (shape[0] * shape[1], shape[2]))
            stored = StoredWeight.of(MadeMatrix(rows), shape, torch.bfloat16)
            experts.register_parameter(name, nn.Parameter(stored, requires_grad=False))
    x = torch.randn(9, HIDDEN).bfloat16() / (1 if layout is None else 2**8)
    index, weights = torch.randint(0, 4, (9, 1)), torch.ones(9, 1)
    shares = []
    for first in (0, 16):
        own, end = copy(experts), first + 16
        own._parameters, own._modules = {}, {**experts._modules}
        gate, up = experts.gate_up_proj.data.chunk(2, 1)
        both = torch.cat([gate[:, first:end], up[:, first:end]], 1)
        own.gate_up_proj = nn.Parameter(both, requires_grad=False)
        down = experts.down_proj.data[..., first:end]
        own.down_proj = nn.Parameter(down, requires_grad=False)
        pack(own)
        shares.append(own(x, index, weights).float())
    pack(experts)
    whole = experts(x, index, weights).float()
    torch.testing.assert_close(sum(shares), whole, rtol=ULP, atol=whole.abs().max().item() * ULP)


@torch.inference_mode()
@pytest.mark.parametrize("name", [name for name in SPARSE if name not in UNKNOWN])
def test_the_router_of_a_family(name: str) -> None:
    """It chooses the same experts, unless two nearly tie, and a token's are those of it alone."""
    router = router_of(sparse_part(name))
    x = torch.randn(200, HIDDEN).bfloat16()
    assert known_routing(router) is not None
    own = ExpertRouter(router)
    index, weights = own(x)
    _, expected_weights, expected = router(x)
    same, expected_same = (each.sort(-1).values for each in (index, expected))
    is_same = (same == expected_same).all(-1)
    assert is_same.float().mean() > 0.9
    found, known = (by_expert(*pair)[is_same] for pair in (
        (index, weights), (expected, expected_weights)
    ))  # fmt: skip
    torch.testing.assert_close(found, known, rtol=2 * ULP, atol=2**-8)
    for rows in (slice(7, 8), slice(10, 13), slice(100, 200)):
        alone = own(x[rows])
        assert torch.equal(alone[0], index[rows])
        assert torch.equal(alone[1], weights[rows])


def by_expert(index: Tensor, weights: Tensor) -> Tensor:
    return weights.gather(-1, index.argsort(-1)).float()


@torch.inference_mode()
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_router_of_another_rule_computes_it_itself(name: str) -> None:
    router = router_of(sparse_part(name))
    assert known_routing(router) is None
    x = torch.randn(9, HIDDEN).bfloat16()
    _, weights, index = router(x)
    found, found_weights = ExpertRouter(router)(x)
    assert torch.equal(found, index)
    assert torch.equal(found_weights, weights)


@torch.inference_mode()
def test_a_router_that_others_follow_is_left_to_itself() -> None:
    router = router_of(sparse_part("qwen3_moe"))
    router.register_forward_hook(lambda module, given, found: found)
    assert known_routing(router) is None

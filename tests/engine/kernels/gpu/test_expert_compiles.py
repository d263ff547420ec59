"""Kernels of experts compile for Hopper, and keep their sums in registers."""

from importlib.util import find_spec

import pytest

from deployments.engine.kernels.experts import SIGMOID, ExpertActivation
from tests.engine.kernels.gpu.test_triton_compiles import compiled

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
TYPES = {
    **dict.fromkeys(("places", "begins", "experts", "index", "chosen"), "*i64"),
    **dict.fromkeys(("n_experts", "of_a_row", "n", "n_blocks"), "i32"),
    **dict.fromkeys(("bias", "logits"), "*bf16"),
    **dict.fromkeys(("weights", "correction"), "*fp32"),
    "counts": "*i32",
}


@pytest.mark.parametrize("tokens", [8, 64, 128])
def test_products_use_matrix_units_and_load_ahead(tokens: int) -> None:
    """Qwen3-30B-A3B's first products. The smallest instructions have as many tokens as a block."""
    import triton.language as tl

    from deployments.engine.kernels.gpu.experts import product_kernels, product_ops

    tiling = product_ops.TILINGS[tokens]
    constants = {
        "SHAPE": product_ops.MatrixShape(768, 2048, 2),
        "ACTIVATION": product_ops.KnownActivation(*ExpertActivation(limit=7.0)),
        "HAS_BIAS": False,
        "IS_GROUPED": True,
        "OUTPUTS": tiling.rows // 2,
        "TOKENS": tokens,
        "INPUTS": tiling.inputs,
        "DOT": tl.bfloat16,
    }
    ptx = compiled(
        product_kernels, "expert_product_kernel", tiling.warps, constants, tiling.stages,
        fused=True, **TYPES,
    )  # fmt: skip
    assert ("wgmma.mma_async" if tokens > 32 else "mma.sync.aligned.m16n8k16") in ptx
    assert "cp.async" in ptx
    assert ".local" not in ptx


def test_grouping_many_tokens_compiles() -> None:
    from deployments.engine.kernels.gpu.experts import grouping_kernels, grouping_ops

    shape = {"EXPERTS": 512, "EXPERTS_PADDED": 1024, "TOKENS": 64, "BLOCKS": 2048}
    n = grouping_ops.at_once(shape["EXPERTS_PADDED"])
    counted = {"PLACES": grouping_ops.MAX_COUNTED, "AT_ONCE": n, "PROGRAMS_AT_ONCE": n, **shape}
    for name in ("choose_kernel", "count_kernel", "place_kernel"):
        names = getattr(grouping_kernels, name).arg_names
        constants = {key: value for key, value in counted.items() if key in names}
        ptx = compiled(grouping_kernels, name, grouping_ops.WARPS, constants, fused=True, **TYPES)
        assert ".local" not in ptx


def test_the_choice_of_experts_compiles() -> None:
    """DeepSeek V3's router, one warp for a token."""
    from deployments.engine.kernels.gpu.experts import router_kernels
    from deployments.engine.kernels.gpu.experts.router_ops import Rule

    rule = Rule(256, 8, SIGMOID, 8, 4, 2, True, 1e-20, 2.5, has_correction=True)
    ptx = compiled(router_kernels, "choose_experts_kernel", 1, {"RULE": rule}, fused=False, **TYPES)
    assert ".local" not in ptx

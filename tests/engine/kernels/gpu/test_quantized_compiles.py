"""Products of quantized weights compile for Hopper to the instructions that their law rests on."""

from importlib.util import find_spec

import pytest
import torch

from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.kernels.gpu.quantized import LAYOUTS, rows_of, weight_of
from tests.engine.kernels.gpu.test_triton_compiles import compiled

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
INTEGERS = {torch.int8: "*i8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
COUNTS = (
    *("n_tokens", "n_rows", "n_outputs", "n_inputs", "n_columns", "out_stride", "n_splits"),
    *("split_slabs", "of_a_token"),
)


def ptx_of(
    weight: StoredWeight, tokens: int, *, is_gated: bool = False, is_grouped: bool = False
) -> str:
    import triton.language as tl

    from deployments.engine.forward.products.slab_matrix import SlabMatrix
    from deployments.engine.kernels.gpu import quantized_kernels, quantized_ops

    slabs = SlabMatrix(weight, torch.device("cpu")).slabs
    names = ("low", "high", "coarse", "fine", "least", "fine_least")
    found = {name: getattr(slabs, name) for name in names}
    types = {name: "*i64" if t is None else INTEGERS[t.dtype] for name, t in found.items()}
    types |= {"order": "*i32", "table": "*fp32", "bias": "*bf16", "residual": "*bf16"}
    types |= {"arrivals": "*i32", "chosen": "*i64", "begins": "*i64", "experts": "*i64"}
    types |= dict.fromkeys(COUNTS, "i32")
    constants = {
        "CODING": slabs.coding,
        "SCALING": slabs.scaling,
        "OUTPUTS": quantized_ops.OUTPUTS,
        "TOKENS": tokens,
        "GATED": int(is_gated),
        "GROUPED": is_grouped,
        "MERGED": True,
        "HAS_ORDER": slabs.order is not None,
        "HAS_BIAS": False,
        "HAS_RESIDUAL": not is_gated and not is_grouped,
        "IS_WHOLE": True,
        "KIND": tl.bfloat16,
        "DOT": tl.bfloat16,
    }
    warps = quantized_ops.WARPS
    return compiled(quantized_kernels, "product_kernel", warps, constants, fused=True, **types)


@pytest.mark.parametrize(("name", "tokens"), [("Q4_K", 32), ("fp8 by rows", 8)])
def test_all_sizes_are_made_of_the_same_instructions(name: str, tokens: int) -> None:
    case = LAYOUTS[name]
    ptx = ptx_of(weight_of(case, rows_of(case)), tokens, is_gated=tokens == 8)
    assert "mma.sync.aligned.m16n8k16" in ptx
    assert "wgmma" not in ptx, "its sums would differ from those of fewer tokens"
    assert "cp.async" in ptx, "codes are not loaded ahead"
    assert ".local" not in ptx


@pytest.mark.parametrize("name", ["MXFP4", "GPTQ, a share"])
def test_the_product_of_experts_compiles(name: str) -> None:
    case = LAYOUTS[name]
    ptx = ptx_of(weight_of(case, rows_of(case)), 8, is_grouped=True)
    assert "mma.sync.aligned.m16n8k16" in ptx
    assert "cp.async" in ptx
    assert ".local" not in ptx

"""The kernels compile for Hopper, fit into its memory and keep their sums in registers; no GPU is
needed.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
POINTERS = {
    "out": "*bf16", "q": "*bf16", "k_pages": "*bf16", "v_pages": "*bf16", "sinks": "*bf16",
    "table": "*i32", "total_len": "*i64", "starts": "*i64", "tiles": "*i64",
    "parts": "*fp32", "peaks": "*fp32", "weights": "*fp32",
    "qkv": "*bf16", "cos": "*bf16", "sin": "*bf16", "q_norm": "*bf16", "k_norm": "*bf16",
    "slots": "*i64", "both": "*bf16",
}  # fmt: skip
NUMBERS = {
    "scale": "fp32", "softcap": "fp32", "v_scale": "fp32",
    "q_token": "i32", "q_head": "i32", "table_row": "i32", "n_splits": "i32",
    "epsilon": "fp32", "k_scale": "fp32", "qkv_token": "i32",
}  # fmt: skip
SHARED = 227 << 10  # bytes that a program may have
SHAPE = {"HEADS": 32, "KV_HEADS": 8, "SHARE": 4, "DIM": 128, "DIM_PAD": 128, "PAGE": 16}


def compiled(
    module: ModuleType,
    name: str,
    warps: int,
    constants: Mapping[str, object],
    *,
    fused: bool = True,
) -> str:
    """The PTX of a kernel for an H100 or H200, for arguments as a launch has them: aligned ones are
    loaded ahead, into shared memory.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module, name)
    types = POINTERS | NUMBERS | dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        function,
        {argument: types[argument] for argument in function.arg_names},
        constexprs={(function.arg_names.index(key),): value for key, value in constants.items()},
        attrs={
            (one.num,): [["tt.divisibility", 16]]
            for one in function.params
            if types[one.name] not in ("constexpr", "fp32")
            and not (one.do_not_specialize or one.do_not_specialize_on_alignment)
        },
    )
    options = {"num_warps": warps, "num_stages": 3, "enable_fp_fusion": fused}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert built.metadata.shared <= SHARED
    ptx: str = built.asm["ptx"]
    return ptx


def test_kernels_compile_for_hopper_and_use_its_matrix_units() -> None:
    import triton.language as tl

    from deployments.engine.kernels.gpu import attention_kernels as paged_kernel
    from deployments.engine.kernels.gpu.attention_ops import MAX_SPLITS, tiling_for

    tiling = tiling_for(torch.bfloat16, 128, SHARED)
    scores = {"WINDOW": 0, "SOFTCAP": False, "SINKS": False, "FACTOR": tl.bfloat16}
    splits = {"SPLIT": tiling.split, "SPLITS": MAX_SPLITS, "KEYS": tiling.keys}
    chunks = {"SHARE_PAD": 4, "QUERIES": tiling.queries, "KEYS": tiling.keys}
    ptx = compiled(
        paged_kernel, "chunks", tiling.chunk_warps, {**SHAPE, **chunks, **scores}, fused=False
    )
    assert "wgmma" in ptx
    assert "fma.rn.f32" not in ptx, "its loops would differ in the last bit"
    assert ".local" not in ptx
    decodes = {**SHAPE, **splits, "QUERIES": 16, **scores}
    assert "mma.sync" in compiled(paged_kernel, "decodes", tiling.decode_warps, decodes)
    merge = {"HEADS": 32, "DIM": 128, "DIM_PAD": 128, "WINDOW": 0, **splits}
    assert "ex2.approx" in compiled(paged_kernel, "merge", 1, merge)


@pytest.mark.parametrize("pages", ["*bf16", "*fp8e4nv"])
def test_wide_heads_fit_into_its_memory(monkeypatch: pytest.MonkeyPatch, pages: str) -> None:
    import triton.language as tl

    from deployments.engine.kernels.gpu import attention_kernels as paged_kernel
    from deployments.engine.kernels.gpu.attention_ops import MAX_SPLITS, tiling_for

    monkeypatch.setitem(POINTERS, "k_pages", pages)
    monkeypatch.setitem(POINTERS, "v_pages", pages)
    tiling = tiling_for(torch.bfloat16, 256, SHARED)
    gemma = {"HEADS": 8, "KV_HEADS": 4, "SHARE": 2, "DIM": 256, "DIM_PAD": 256, "PAGE": 16}
    scores = {"WINDOW": 128, "SOFTCAP": True, "SINKS": True, "FACTOR": tl.bfloat16}
    parts = {**gemma, **scores, "KEYS": tiling.keys}
    chunks = {**parts, "SHARE_PAD": 2, "QUERIES": tiling.queries}
    assert ".local" not in compiled(paged_kernel, "chunks", tiling.chunk_warps, chunks, fused=False)
    decodes = {**parts, "QUERIES": 16, "SPLIT": tiling.split, "SPLITS": MAX_SPLITS}
    assert ".local" not in compiled(paged_kernel, "decodes", tiling.decode_warps, decodes)


@pytest.mark.parametrize("pages", ["*bf16", "*fp8e4nv"])
@pytest.mark.parametrize("normed", [False, True])
def test_what_stands_between_products_compiles(
    monkeypatch: pytest.MonkeyPatch, pages: str, normed: bool
) -> None:
    from deployments.engine.kernels.gpu import layer_kernels as layer_kernel

    monkeypatch.setitem(POINTERS, "k_pages", pages)
    monkeypatch.setitem(POINTERS, "v_pages", pages)
    heads = {"HEADS": 32, "KV_HEADS": 8, "DIM": 128, "DIM_PAD": 128, "BLOCK": 8}
    kinds = {"NORMED": normed, "FP8": pages != "*bf16", "LIMIT": 448.0}
    assert ".local" not in compiled(layer_kernel, "turn_and_store", 4, {**heads, **kinds})
    assert ".local" not in compiled(layer_kernel, "swiglu", 4, {"WIDTH": 14336, "BLOCK": 1024})


def test_rows_become_float8_by_the_devices_own_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments.engine.kernels.gpu import layer_kernels as layer_kernel

    for name, kind in {"x": "*bf16", "out": "*fp8e4nv", "scales": "*fp32"}.items():
        monkeypatch.setitem(POINTERS, name, kind)
    limits = {"WIDTH": 14336, "BLOCK": 4096, "LIMIT": 448.0, "LEAST": 1e-12}
    ptx = compiled(layer_kernel, "to_float8", 8, limits)
    assert "cvt.rn.satfinite.e4m3x2.f32" in ptx
    assert ".local" not in ptx


def test_top_p_keeps_its_sums_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments.engine.kernels.gpu import top_p_kernels as sampling_kernel
    from deployments.engine.kernels.gpu import top_p_ops as sampling_launch

    for name, kind in {
        "logits": "*fp32",
        "top_p": "*fp32",
        "min_keep": "*fp32",
        "size": "i32",
    }.items():
        monkeypatch.setitem(POINTERS, name, kind)
    ptx = compiled(sampling_kernel, "nucleus", 16, {"BLOCK": sampling_launch.BLOCK})
    assert ".local" not in ptx

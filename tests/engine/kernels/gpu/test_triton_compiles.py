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
    "slopes": "*fp32",
    "table": "*i32", "total_len": "*i64", "starts": "*i64", "tiles": "*i64",
    "parts": "*fp32", "part_max": "*fp32", "part_sum": "*fp32",
    "qkv": "*bf16", "cos": "*bf16", "sin": "*bf16", "q_norm": "*bf16", "k_norm": "*bf16",
    "slots": "*i64", "tokens": "*i64", "begins": "*i64", "blocks": "*i64", "a": "*bf16",
    "b": "*bf16", "shrunk": "*fp32", "gate_up": "*bf16", "x": "*bf16", "weight": "*bf16",
    "residual": "*bf16", "q_scale": "*bf16",
}  # fmt: skip
NUMBERS = {
    "scale": "fp32", "softcap": "fp32", "v_scale": "fp32",
    "q_token_stride": "i32", "q_head_stride": "i32", "table_stride": "i32", "n_splits": "i32",
    "first_out": "i32", "out_stride": "i32", "epsilon": "fp32", "plus": "fp32", "k_scale": "fp32",
    "qkv_stride": "i32", "n_tokens": "i32", "x_stride": "i32",
}  # fmt: skip
SHARED = 227 << 10  # bytes that a program may have


def compiled(
    module: ModuleType,
    name: str,
    warps: int,
    constants: Mapping[str, object],
    stages: int = 3,
    /,
    *,
    fused: bool = True,
    **own: str,
) -> str:
    """The PTX of a kernel for an H100 or H200, for arguments as a launch has them: aligned ones are
    loaded ahead, into shared memory. Those of `own` types have no others.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module, name)
    types = POINTERS | NUMBERS | own | dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        function,
        {argument: types[argument] for argument in function.arg_names},
        constexprs={(function.arg_names.index(key),): value for key, value in constants.items()},
        attrs={
            (parameter.num,): [["tt.divisibility", 16]]
            for parameter in function.params
            if types[parameter.name] not in ("constexpr", "fp32")
            and not (parameter.do_not_specialize or parameter.do_not_specialize_on_alignment)
        },
    )
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": fused}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert built.metadata.shared <= SHARED
    ptx: str = built.asm["ptx"]
    return ptx


def test_kernels_compile_for_hopper_and_use_its_matrix_units() -> None:
    import triton.language as tl

    from deployments.engine.kernels.gpu import attention_kernels, chunk_kernels
    from deployments.engine.kernels.gpu.attention_ops import (
        MAX_SPLITS,
        MERGE_WARPS,
        MERGED_QUERIES,
        MIN_QUERIES,
        tiling_for,
    )

    tiling = tiling_for(torch.bfloat16, 128, SHARED)
    shape = attention_kernels.Shape(32, 8, 4, 4, 128, 128, 16, 32 * 2 * 16 * 8 * 128)
    both = {"SHAPE": shape, "SCORING": attention_kernels.Scoring(0, False, False, tl.bfloat16)}
    splits = {"SPLITS": attention_kernels.Splits(tiling.keys, tiling.min_split_keys, MAX_SPLITS)}
    split = {"QUERIES": tiling.queries, "SPLIT_KEYS": tiling.chunk_split_keys, **both}
    for is_split in (False, True):
        chunks = {"KEYS": tiling.keys, "IS_SPLIT": is_split, **split}
        ptx = compiled(chunk_kernels, "chunk_kernel", tiling.chunk_warps, chunks, fused=False)
        assert "wgmma" in ptx
        assert "fma.rn.f32" not in ptx, "its loops would differ in the last bit"
        assert ".local" not in ptx
    lanes = {"LANES": MERGED_QUERIES, **split}
    ptx = compiled(chunk_kernels, "chunk_merge_kernel", MERGE_WARPS, lanes, fused=False)
    assert "fma.rn.f32" not in ptx, "its sums would differ in the last bit"
    decodes = {"QUERIES": MIN_QUERIES, **splits, **both}
    ptx = compiled(attention_kernels, "decode_kernel", tiling.decode_warps, decodes)
    assert "mma.sync" in ptx
    merge = {"WINDOW": 0, "SHAPE": shape, **splits}
    assert "ex2.approx" in compiled(attention_kernels, "merge_kernel", 1, merge)


@pytest.mark.parametrize("pages", ["*bf16", "*fp8e4nv"])
def test_wide_heads_fit_into_its_memory(monkeypatch: pytest.MonkeyPatch, pages: str) -> None:
    import triton.language as tl

    from deployments.engine.kernels.gpu import attention_kernels, chunk_kernels
    from deployments.engine.kernels.gpu.attention_ops import MAX_SPLITS, MIN_QUERIES, tiling_for

    monkeypatch.setitem(POINTERS, "k_pages", pages)
    monkeypatch.setitem(POINTERS, "v_pages", pages)
    tiling = tiling_for(torch.bfloat16, 256, SHARED)
    gemma = {
        "SHAPE": attention_kernels.Shape(8, 4, 2, 2, 256, 256, 16, 8 * 2 * 16 * 4 * 256),
        "SCORING": attention_kernels.Scoring(128, True, True, tl.bfloat16, has_slopes=True),
    }
    chunks = {"QUERIES": tiling.queries, "KEYS": tiling.keys, "IS_SPLIT": False, **gemma}
    chunks["SPLIT_KEYS"] = tiling.chunk_split_keys
    ptx = compiled(chunk_kernels, "chunk_kernel", tiling.chunk_warps, chunks, fused=False)
    assert ".local" not in ptx
    splits = attention_kernels.Splits(tiling.keys, tiling.min_split_keys, MAX_SPLITS)
    decodes = {"QUERIES": MIN_QUERIES, "SPLITS": splits, **gemma}
    assert ".local" not in compiled(
        attention_kernels, "decode_kernel", tiling.decode_warps, decodes
    )


@pytest.mark.parametrize("pages", ["*bf16", "*fp8e4nv"])
def test_latents_are_not_padded_to_twice_their_memory(
    monkeypatch: pytest.MonkeyPatch, pages: str
) -> None:
    import triton.language as tl

    from deployments.engine.kernels.gpu import attention_kernels, chunk_kernels
    from deployments.engine.kernels.gpu.attention_ops import MAX_SPLITS, tiling_for

    monkeypatch.setitem(POINTERS, "k_pages", pages)
    monkeypatch.setitem(POINTERS, "v_pages", pages)
    tiling = tiling_for(torch.bfloat16, 576, SHARED, 512)
    deepseek = {
        "SHAPE": attention_kernels.Shape(128, 1, 128, 64, 512, 512, 16, 16 * 576, 64, 64, True),
        "SCORING": attention_kernels.Scoring(0, False, False, tl.bfloat16),
    }
    for is_split in (False, True):
        chunks = {"QUERIES": tiling.queries, "KEYS": tiling.keys, "IS_SPLIT": is_split, **deepseek}
        chunks["SPLIT_KEYS"] = tiling.chunk_split_keys
        ptx = compiled(chunk_kernels, "chunk_kernel", tiling.chunk_warps, chunks, fused=False)
        assert "wgmma" in ptx
        assert "fma.rn.f32" not in ptx
        assert ".local" not in ptx
    splits = attention_kernels.Splits(tiling.keys, tiling.min_split_keys, MAX_SPLITS)
    decodes = {"QUERIES": tiling.decode_heads, "SPLITS": splits, **deepseek}
    ptx = compiled(attention_kernels, "decode_kernel", tiling.decode_warps, decodes)
    assert "wgmma" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("pages", ["*bf16", "*fp8e4nv"])
@pytest.mark.parametrize("normed", [False, True])
def test_what_stands_between_products_compiles(
    monkeypatch: pytest.MonkeyPatch, pages: str, normed: bool
) -> None:
    from deployments.engine.kernels.gpu import layer_kernels

    monkeypatch.setitem(POINTERS, "k_pages", pages)
    monkeypatch.setitem(POINTERS, "v_pages", pages)
    heads = {"HEADS": 32, "KV_HEADS": 8, "DIM": 128, "DIM_PADDED": 128, "BLOCK": 8}
    heads |= {"ROTATED": 128, "INTERLEAVED": normed}
    kinds = {
        "HAS_NORMS": normed,
        "NORMS_LAST": False,
        "HAS_SCALE": normed,
        "FP8": pages != "*bf16",
        "FP8_MAX": 448.0,
    }
    assert ".local" not in compiled(layer_kernels, "rotary_and_store_kernel", 4, {**heads, **kinds})
    assert ".local" not in compiled(
        layer_kernels, "gate_kernel", 4, {"WIDTH": 14336, "BLOCK": 1024, "ACTIVATION": 1}
    )
    row = {"WIDTH": 5120, "BLOCK": 8192, "HAS_RESIDUAL": normed, "CENTERED": normed}
    assert ".local" not in compiled(layer_kernels, "norm_kernel", 16, row)


@pytest.mark.parametrize("rank", [16, 256])
def test_what_adapters_add_compiles(rank: int) -> None:
    import triton.language as tl

    from deployments.engine.kernels.gpu import adapter_kernels

    both = {"PARTS": 3, "RANK": rank, "TOKENS": 16, "DOT": tl.bfloat16}
    shrunk = {"WIDTH": 14336, "SHARE": 512, "INPUTS": 64}
    ptx = compiled(adapter_kernels, "shrink_kernel", 4, both | shrunk, out="*fp32")
    assert "mma" in ptx
    assert ".local" not in ptx
    expanded = {"OUTS": 6144, "OUTPUTS": 64, "SPLITS": 28}
    ptx = compiled(adapter_kernels, "expand_kernel", 4, both | expanded)
    assert "mma" in ptx
    assert ".local" not in ptx


def test_rows_become_float8_by_the_devices_own_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments.engine.kernels.gpu import layer_kernels

    for name, kind in {"out": "*fp8e4nv", "scales": "*fp32"}.items():
        monkeypatch.setitem(POINTERS, name, kind)
    limits = {"WIDTH": 14336, "BLOCK": 4096, "FP8_MAX": 448.0, "MIN_AMAX": 1e-12}
    ptx = compiled(layer_kernels, "to_float8_kernel", 8, limits)
    assert "cvt.rn.satfinite.e4m3x2.f32" in ptx
    assert ".local" not in ptx


def test_top_p_keeps_its_sums_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments.engine.kernels.gpu import top_p_kernels
    from deployments.engine.kernels.gpu.top_p_ops import BLOCK

    for name, kind in {
        "logits": "*fp32",
        "top_p": "*fp32",
        "min_keep": "*fp32",
        "size": "i32",
    }.items():
        monkeypatch.setitem(POINTERS, name, kind)
    ptx = compiled(top_p_kernels, "top_p_kernel", 16, {"BLOCK": BLOCK})
    assert ".local" not in ptx


def test_the_draw_rounds_each_operation_by_itself() -> None:
    from deployments.engine.kernels.gpu import draw_kernels
    from deployments.engine.kernels.gpu.draw_ops import BLOCK

    own = {
        "logits": "*fp32",
        "row_stride": "i32",
        "vocab": "i32",
        "largest": "*fp32",
        "likeliest": "*i64",
        "rows": "*i64",
        "keys": "*i64",
        "sums": "*fp64",
        "token_ids": "*i64",
    }
    ptx = compiled(draw_kernels, "draw_kernel", 8, {"BLOCK": BLOCK}, fused=False, **own)
    assert "div.rn.f64" in ptx
    assert "fma.rn.f64" not in ptx, "a CPU would have other noise in the last bit"
    assert ".local" not in ptx

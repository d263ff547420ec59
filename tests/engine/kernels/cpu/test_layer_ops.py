"""The CPU's own kernels beside torch's operations, and a token beside others as alone."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.attention.cpu import _norm_and_rotate
from deployments.engine.forward.fused.norm import Norm, WideNorm
from deployments.engine.forward.linear import PackedLinear
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import layer_ops, matmul_ops
from deployments.engine.kernels.cpu.features import has_native_bf16
from deployments.engine.kernels.cpu.matmul_kernels import PACKS
from deployments.engine.kernels.cpu.matmul_ops import MAX_ROWS_BESIDE_ONEDNN, MIN_ROWS_PER_TASK
from deployments.engine.kernels.cpu.pack_format import PackFormat
from deployments.engine.kernels.cpu.packed_weight import PackedPointer
from deployments.engine.kernels.cpu.simd import HAS_AVX512
from deployments.engine.kernels.rotary import (
    MAX_TABLE,
    MIN_TABLE,
    RotaryEmbedding,
    RotaryTable,
    rotary_embedding,
)
from kv.layout import alike
from kv.storage import Storage
from tests.engine.kernels.cpu import (
    test_attention_kernels,
    test_experts,
    test_quantized_products,
)

KINDS = [False, True] if has_native_bf16() else [False]  # of `uses_onednn`
PAGE, KV_HEADS, DIM = 16, 2, 32
HEAD = 80  # half of it is no whole number of vectors
ULP = 2**-7  # of bfloat16, relative
PACKED = [str(module.__file__) for module in (test_quantized_products, test_experts)]
# Kernels are compiled for each shape (heads, width of a head): this leaves 6-32 of attention's.
ONE_SHAPE = ["-k", "not (10-24 or 6-70 or 80-30)"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


def some(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width).bfloat16(), requires_grad=False)
        self.variance_epsilon = 1e-5


@pytest.mark.parametrize("tokens", [1, 7, 8, 300])
def test_a_norm_is_torchs(tokens: int) -> None:
    norm, x = Norm(RMSNorm(96)), some(tokens, 96)
    torch.testing.assert_close(
        norm(x), F.rms_norm(x, (96,), norm.weight, norm.epsilon), rtol=ULP, atol=0
    )
    assert torch.equal(norm(x)[-1:], norm(x[-1:]))
    residual = some(tokens, 96)
    shifted = Norm(RMSNorm(96), plus=1.0)
    exact = F.rms_norm(x.float(), (96,), shifted.weight.float() + 1, norm.epsilon)
    torch.testing.assert_close(shifted(x).float(), exact, rtol=ULP, atol=0)
    summed = shifted.add(x, residual)
    torch.testing.assert_close(summed.float(), exact + residual.float(), rtol=ULP, atol=1e-3)


@pytest.mark.parametrize("kind", GateActivation)
def test_gates_and_sums_are_torchs(kind: GateActivation) -> None:
    gate_up, other = 3 * some(9, 2 * 70), some(9, 70)
    gate, up = gate_up.float().chunk(2, 1)
    found = layer_ops.gated(gate_up, kind)
    torch.testing.assert_close(found.float(), kind(gate) * up, rtol=ULP, atol=1e-4)
    summed = layer_ops.add(other, found, 0.22).float()
    torch.testing.assert_close(summed, other.float() + 0.22 * found.float(), rtol=ULP, atol=1e-4)


def test_a_part_of_each_row_is_normed_in_place() -> None:
    norm, x = RMSNorm(96), some(9, 160)
    expected = torch.cat([x[:, :32], Norm(norm)(x[:, 32:128]), x[:, 128:]], 1)
    WideNorm(norm).apply_(x[:, 32:128])
    assert torch.equal(x, expected)


def test_a_centered_norm_is_torchs() -> None:
    norm, x = Norm(RMSNorm(96), is_centered=True), some(9, 96) + 3
    exact = F.layer_norm(x.float(), (96,), norm.weight.float(), None, norm.epsilon)
    torch.testing.assert_close(norm(x).float(), exact, rtol=ULP, atol=1e-5)
    assert torch.equal(norm(x)[-1:], norm(x[-1:]))


def test_a_gated_sum_is_torchs() -> None:
    x, y, gates = some(9, 70), some(9, 70), 3 * some(9, 1)
    exact = x.float() + gates.float().sigmoid() * y.float()
    torch.testing.assert_close(layer_ops.add_gated(x, y, gates).float(), exact, rtol=ULP, atol=1e-4)


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize("rotated", [HEAD, 12])
@pytest.mark.parametrize("normed", ["", "before", "behind"])
def test_heads_are_turned_as_torch_turns_them(
    normed: str, rotated: int, is_interleaved: bool
) -> None:
    tokens, heads, n_first = 9, 5, 3
    x = some(tokens, heads + 2, HEAD)
    angles = torch.rand(1, tokens, rotated // 2).repeat(1, 1, 2) * 7
    rotary = rotary_embedding(angles.cos().bfloat16(), angles.sin().bfloat16(), is_interleaved)
    rotary = rotary._replace(query_scale=some(tokens, 1, 1)) if is_interleaved else rotary
    is_behind = normed == "behind"
    both = Norm(RMSNorm(HEAD), 1.0, False, is_behind), Norm(RMSNorm(HEAD), 1.0, False, is_behind)
    norms = both if normed else None
    expected = _norm_and_rotate(x[:, :heads].float(), rotary.map(Tensor.float), norms, n_first)
    rest = x[:, heads:].clone()
    layer_ops.apply_rotary_(x[:, :heads], rotary, norms, n_first)
    torch.testing.assert_close(x[:, :heads].float(), expected, rtol=ULP, atol=5e-2)
    assert torch.equal(x[:, heads:], rest)


def test_a_rotary_embedding_is_looked_up_as_it_is_computed() -> None:
    """The table grows where a position lies behind the last one that it has."""

    def compute(positions: Tensor) -> RotaryEmbedding:
        angles = (positions[..., None] * torch.arange(1, 7) / 7).repeat(1, 1, 2)
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        return rotary_embedding(cos, sin, is_interleaved=True, query_scale=positions.bfloat16())

    table = RotaryTable(compute)
    for last in (3, MIN_TABLE - 1, MIN_TABLE, 5 * MIN_TABLE, MAX_TABLE, 4):
        positions = torch.tensor([2, last, 0, last])
        found, expected = table.take(positions), compute(positions[None])
        into = expected.map(torch.empty_like)
        table.take_into(into, positions)
        for looked_up in (found, into):
            assert looked_up.is_interleaved
            parts, others = parts_of(looked_up), parts_of(expected)
            assert all(part.is_contiguous() for part in parts)
            assert all(map(torch.equal, parts, others))


def parts_of(rotary: RotaryEmbedding) -> tuple[Tensor, Tensor, Tensor]:
    assert rotary.query_scale is not None
    return rotary.cos, rotary.sin, rotary.query_scale


def test_keys_and_values_are_stored_where_torch_stores_them() -> None:
    storages = [Storage(alike(1, KV_HEADS, DIM), 6, PAGE, dtype=torch.bfloat16) for _ in range(2)]
    tokens = torch.randperm(6 * PAGE)[:40]
    slots = tokens // PAGE * storages[0].page_stride[0] + tokens % PAGE
    both = some(40, 3 + 2 * KV_HEADS, DIM)
    k, v = both[:, 3 : 3 + KV_HEADS], both[:, 3 + KV_HEADS :]
    storages[0].write(0, slots, k, v)
    layer_ops.store(k, v, slots, *storages[1].layers[0])
    for by_torch, by_us in zip(storages[0].layers[0], storages[1].layers[0], strict=True):
        assert torch.equal(by_torch, by_us)


def rows_of(n: int, width: int, out: int, bias: bool) -> tuple[nn.Linear, Tensor, Tensor]:
    linear = nn.Linear(width, out, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    return linear, some(n, width), some(n, out)


@pytest.mark.parametrize("uses_onednn", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("out", "width"), [(64, 96), (100, 64), (33, 48), (3, 10)])
def test_few_rows_times_a_packed_matrix(
    out: int, width: int, bias: bool, uses_onednn: bool
) -> None:
    linear, x, other = rows_of(MAX_ROWS_BESIDE_ONEDNN, width, out, bias)
    packed = PackedLinear(linear, uses_onednn)
    computes_with_what_follows(packed, linear, x, other)
    assert torch.equal(packed(x)[1:], packed(x[1:]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [*range(3, 14), 60, 100])
def test_many_rows_times_a_packed_matrix(n: int, bias: bool) -> None:
    linear, x, other = rows_of(n, 1 << 12, 70, bias)  # of which a task takes MIN_ROWS_PER_TASK
    computes_with_what_follows(PackedLinear(linear, uses_onednn=False), linear, x, other)


def computes_with_what_follows(
    packed: PackedLinear, linear: nn.Linear, x: Tensor, other: Tensor
) -> None:
    bias = None if linear.bias is None else linear.bias.float()
    exact = F.linear(x.float(), linear.weight.float(), bias)
    expected = {
        "none": (packed(x), exact),
        "swish": (packed(x, "swish"), F.silu(exact)),
        "gelu_tanh": (packed(x, "gelu_tanh"), F.gelu(exact, approximate="tanh")),
        "add": (packed.forward_binary(x, other, "add"), exact + other.float()),
        "mul": (packed.forward_binary(x, other, "mul"), exact * other.float()),
    }
    for found, right in expected.values():
        torch.testing.assert_close(found.float(), right, rtol=ULP, atol=1e-3)


def test_a_row_of_many_is_multiplied_as_alone() -> None:
    linear, x, _ = rows_of(MIN_ROWS_PER_TASK + 15, 1 << 12, 70, bias=True)
    packed = PackedLinear(linear, uses_onednn=False)
    together = packed(x)
    for row in range(len(x)):
        assert torch.equal(together[row : row + 1], packed(x[row : row + 1]))
    assert torch.equal(together[3:10], packed(x[3:10]))


def test_what_is_no_number_stays_none() -> None:
    linear, x, _ = rows_of(9, 64, 40, bias=False)
    x[4, 2], x[7, 3] = float("nan"), float("inf")
    found = PackedLinear(linear, uses_onednn=False)(x)
    assert found[4].isnan().all()
    assert not found[7].isfinite().any()
    assert found[[0, 1, 2, 3, 5, 6, 8]].isfinite().all()


@pytest.mark.parametrize("pack", PACKS)
def test_all_layouts_that_are_known_are_read(pack: int) -> None:
    out, width = 2 * pack + 5, 40
    weight, x = some(out, width), some(1, width)
    filled = F.pad(weight, (0, 0, 0, -out % pack))
    packed = filled.view(-1, pack, width // 2, 2).transpose(1, 2).contiguous()
    found = matmul_ops.matmul(x, PackedPointer(packed.data_ptr(), PackFormat(pack)), out, None)
    torch.testing.assert_close(found.float(), x.float() @ weight.float().T, rtol=ULP, atol=1e-3)


@pytest.mark.parametrize("uses_onednn", KINDS)
def test_no_rows_at_all(uses_onednn: bool) -> None:
    linear, x, other = rows_of(2, 64, 40, bias=True)
    packed = PackedLinear(linear, uses_onednn)
    assert packed(x[:0]).shape == packed.forward_binary(x[:0], other[:0], "add").shape == (0, 40)


@pytest.mark.parametrize("uses_onednn", KINDS)
def test_a_matrix_without_pairs(uses_onednn: bool) -> None:
    """It is small: oneDNN's layout is another one, and it is packed as ours."""
    linear, x, _ = rows_of(1, 63, 64, bias=True)
    packed = PackedLinear(linear, uses_onednn)
    assert packed.has_kernel
    torch.testing.assert_close(packed(x), linear(x), rtol=ULP, atol=1e-3)


@pytest.mark.skipif(not HAS_AVX512, reason="this processor's kernels have no other form")
@pytest.mark.exhaustive  # the same kernels, compiled once more
@pytest.mark.parametrize(
    ("more", "files"),
    [
        ("", [__file__, test_attention_kernels.__file__, *PACKED]),
        (",+avxvnni", PACKED),
    ],
)
def test_kernels_for_processors_without_avx512(more: str, files: list[str]) -> None:
    haswell = "+sse4.2,+avx,+avx2,+fma,+f16c" + more
    env = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": haswell}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *ONE_SHAPE]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

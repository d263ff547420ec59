"""Rows times quantized matrices: near what the weights stand for, and a row as alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.forward.products.experts import SeparateExperts, quantized_experts
from deployments.engine.forward.quantized_linear import (
    JoinedPacked,
    ManyRows,
    PackedQuantized,
    can_dequantize,
    packed_linear,
)
from deployments.engine.kernels.cpu import int8_ops, matmul_ops
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16
from deployments.engine.kernels.cpu.matmul_kernels import ADD, MUL, NONE, SWISH
from deployments.engine.kernels.cpu.matmul_ops import MIN_ROWS_PER_TASK
from deployments.engine.kernels.cpu.packed_weight import PackedMatrix, PackedWeight, pack_rows
from deployments.engine.kernels.cpu.simd import HAS_BYTE_PRODUCTS, PACK
from deployments.engine.quantized.layout import (
    E4M3,
    INT8,
    IQ4,
    Codebook,
    FactorType,
    Layout,
    Numbers,
    integers,
)
from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.quantized.made import MadeMatrix, rows_of

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
ULP = 2**-7  # of bfloat16, relative
ROUNDED = 2e-2  # what inputs of 8 bits change, relative to the largest output
# Where oneDNN does not multiply bfloat16 the engine never dequantizes, and has no such matrices.
needs_bfloat16 = pytest.mark.skipif(not has_native_bf16(), reason="does not multiply bfloat16")
needs_bytes = pytest.mark.skipif(not HAS_BYTE_PRODUCTS, reason="does not multiply bytes")
F16, F32, BF16 = (FactorType(dtype, 32) for dtype in (torch.float16, torch.float32, torch.bfloat16))
ROW = FactorType(torch.float32, 0)
OF_256 = FactorType(torch.float16, 256)
Q4_K = (FactorType(torch.uint8, 32, 6), OF_256)
Q2_K = (FactorType(torch.uint8, 16, 4), OF_256)
INEXACT: Numbers = tuple((code - 7) / 3 for code in range(16))  # in bfloat16
LAYOUTS = {  # each of another way to decode codes, or of other factors
    "int4": Layout(integers(4), (BF16,), (BF16,)),
    "Q4_0": Layout(integers(4, -8), (F16,)),
    "Q4_K": Layout(integers(4), Q4_K, Q4_K),
    "Q2_K": Layout(integers(2), Q2_K, Q2_K),
    "Q3_K": Layout(integers(3, -4), (FactorType(torch.int8, 16, 6), OF_256)),
    "Q5_K": Layout(integers(5), Q4_K, Q4_K),
    "int3": Layout(integers(3), (F16,), (F16,)),
    "Q5_1": Layout(integers(5), (F16,), (F32,)),
    "Q6_K": Layout(integers(6, -32), (FactorType(torch.int8, 16), OF_256)),
    "Q8_0": Layout(INT8, (F16,)),
    "int8": Layout(INT8, (FactorType(torch.bfloat16, 0),)),
    "int8 + 3": Layout(integers(8, -125), (F16,)),
    "IQ4_NL": Layout(IQ4, (F16,)),
    "NVFP4": Layout(IQ4, (FactorType(torch.float8_e4m3fn, 16), ROW)),
    "float4": Layout(Codebook("thirds", tuple(map(float, torch.tensor(INEXACT)))), (F32,)),
    "fp8": Layout(E4M3, (ROW,)),
    "fp8 of blocks": Layout(E4M3, (FactorType(torch.float32, 128),)),
}
OF_BYTES = [name for name in LAYOUTS if name not in ("float4", "fp8", "fp8 of blocks")]
SHAPE = (75, 512)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


def some(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


def packed(rows: QuantizedRows) -> PackedWeight:
    stored = StoredWeight.of(MadeMatrix(rows), rows.codes.shape, torch.bfloat16)
    made = pack_rows(stored, rows.layout, *rows.codes.shape)
    assert made is not None
    return made


def near(found: Tensor, expected: Tensor) -> None:
    most = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=ULP, atol=most * 1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_times_a_matrix(name: str) -> None:
    """A row's bits are the same whatever stands beside it."""
    rows = rows_of(LAYOUTS[name], SHAPE)
    matrix, x = packed(rows), some(40, SHAPE[1])
    together = matmul_ops.matmul(x, matrix.pointer, SHAPE[0], None)
    near(together, x.float() @ rows.dequantize().T)
    for n in (1, 2, 5, 16):
        assert torch.equal(matmul_ops.matmul(x[:n], matrix.pointer, SHAPE[0], None), together[:n])


def rounded(x: Tensor, span: int) -> Tensor:
    """Each span of a row has 127 steps up to its largest number."""
    spans = x.float().view(len(x), -1, span)
    largest = spans.abs().amax(-1, keepdim=True)
    return (spans * (torch.tensor(127) / largest)).round().mul(largest / 127).view_as(x)


@needs_bytes
@pytest.mark.parametrize("name", OF_BYTES)
def test_many_rows_are_rounded_to_8_bits(name: str) -> None:
    """A row's bits are the same whatever stands beside it, and in each task."""
    rows = rows_of(LAYOUTS[name], SHAPE)
    matrix, x = packed(rows), some(2 * int8_ops.MIN_ROWS_PER_TASK + 3, SHAPE[1])
    assert matrix.pack_format.quantized is not None
    span = max(int8_ops.SPAN, matrix.pack_format.quantized.input_group)
    together = int8_ops.matmul(x, matrix.pointer, SHAPE[0], None)
    near(together, rounded(x, span) @ rows.dequantize().T)
    for n in (1, 5, 60):
        alone = int8_ops.matmul(x[-n:], matrix.pointer, SHAPE[0], None)
        assert torch.equal(alone, together[-n:])


@needs_bytes
@pytest.mark.parametrize(
    ("layout", "width"),
    [
        (LAYOUTS["int8"], 63),
        (LAYOUTS["Q4_0"], 96),
        (LAYOUTS["NVFP4"], 48),
        (Layout(integers(4, -8), (F32._replace(group=512),)), 1024),
        (Layout(integers(4), (BF16._replace(group=64),), (BF16._replace(group=64),)), 192),
    ],
)
def test_rounded_rows_of_any_width(layout: Layout, width: int) -> None:
    """The last span may be shorter."""
    rows, x = rows_of(layout, (40, width)), some(7, width)
    matrix = packed(rows)
    found = int8_ops.matmul(x, matrix.pointer, 40, None)
    expected = x.float() @ rows.dequantize().T
    most = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=ULP, atol=most * ROUNDED)


@needs_bytes
@pytest.mark.parametrize("name", ["Q4_K", "int8", "NVFP4"])
def test_rounded_inputs_that_are_no_numbers_or_tiny(name: str) -> None:
    rows, x = rows_of(LAYOUTS[name], SHAPE), some(4, SHAPE[1])
    matrix = packed(rows)
    x[0], x[3] = 0, x[3] * 1e-34
    x[1, 3], x[2, 500] = float("nan"), float("inf")
    found = int8_ops.matmul(x, matrix.pointer, SHAPE[0], None)
    assert found[1].isnan().all()
    assert not found[2].isfinite().any()
    assert not found[0].any()
    assert not found[3].any()


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_are_read_out_as_they_were_packed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.engine.kernels.cpu.packed_weight.WEIGHTS_AT_ONCE", 1)
    rows = rows_of(LAYOUTS[name], SHAPE)
    index = torch.tensor([74, 0, 33, 33, 5])
    matrix, expected = packed(rows), rows.take(index)
    found = matrix.take(index)
    assert found.layout == rows.layout
    assert torch.equal(found.dequantize(), expected.dequantize())
    stored = PackedMatrix(matrix, SHAPE[1], None)
    numbers = stored.numbers(index, torch.bfloat16)
    assert torch.equal(numbers, expected.dequantize().bfloat16())
    for wrong in (-1, SHAPE[0]):
        with pytest.raises(IndexError):
            stored.numbers(torch.tensor([0, wrong]), torch.bfloat16)
    assert name.startswith("fp8") or torch.equal(found.codes, expected.codes)


@needs_bfloat16
@pytest.mark.parametrize("name", LAYOUTS)
def test_weights_become_bfloat16_where_onednn_reads_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part at a time, the last of which is no whole block."""
    monkeypatch.setattr("deployments.engine.forward.quantized_linear.DEQUANTIZED_BYTES", 150_000)
    rows = rows_of(LAYOUTS[name], (200, 512))
    assert can_dequantize(512, 200)
    linear = PackedQuantized(packed(rows), None, ManyRows(1, are_rounded=False))
    assert torch.equal(linear(torch.eye(512).bfloat16()), rows.dequantize().bfloat16().T)


@pytest.mark.parametrize("name", ["int4", "int8"])
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
@pytest.mark.parametrize(("n_out", "width"), [(64, 96), (100, 64), (33, 128), (3, 32)])
def test_what_follows_a_product(name: str, rows: int, n_out: int, width: int) -> None:
    weights = rows_of(LAYOUTS[name], (n_out, width))
    matrix, weight = packed(weights), weights.dequantize()
    x, other, bias = some(rows, width), some(rows, n_out), some(n_out)
    for biased in (None, bias):
        y = x.float() @ weight.T + (0 if biased is None else biased.float())
        product = [
            matmul_ops.matmul(x, matrix.pointer, n_out, biased, then, other) for then in range(4)
        ]
        near(product[NONE], y)
        near(product[SWISH], F.silu(y))
        near(product[ADD], y + other.float())
        near(product[MUL], y * other.float())


@pytest.mark.parametrize("name", ["Q4_K", "int8", "NVFP4", "fp8", "float4"])
def test_inputs_that_are_no_numbers_or_tiny_or_huge(name: str) -> None:
    rows, x = rows_of(LAYOUTS[name], SHAPE), some(6, SHAPE[1])
    matrix = packed(rows)
    x[0], x[3] = 0, x[3] * 1e-30
    x[1, 3], x[2, 500], x[4, 7] = float("nan"), float("inf"), 1e4
    found = matmul_ops.matmul(x, matrix.pointer, SHAPE[0], None)
    assert found[1].isnan().all()
    assert not found[2].isfinite().any()
    for row in (0, 3, 4, 5):
        near(found[row], rows.dequantize() @ x[row].float())


def test_inputs_that_fill_no_unit() -> None:
    for layout, width in ((LAYOUTS["int8"], 63), (Layout(integers(4, -8), (ROW,)), 36)):
        rows = rows_of(layout, (40, width))
        matrix, x = packed(rows), some(20, width)
        expected = x.float() @ rows.dequantize().T
        near(matmul_ops.matmul(x, matrix.pointer, 40, None), expected)
        near(PackedQuantized(matrix, None)(x), expected)


def test_groups_of_64() -> None:
    rows = rows_of(Layout(integers(4), (BF16._replace(group=64),)), (48, 192))
    matrix, x = packed(rows), some(5, 192)
    near(matmul_ops.matmul(x, matrix.pointer, 48, None), x.float() @ rows.dequantize().T)


@pytest.mark.parametrize("name", ["int4", "int8"])
def test_a_row_is_the_same_in_each_task(name: str) -> None:
    matrix = packed(rows_of(LAYOUTS[name], (70, 1 << 12)))
    x = some(MIN_ROWS_PER_TASK + 15, 1 << 12)
    together = matmul_ops.matmul(x, matrix.pointer, 70, None)
    for row in range(len(x)):
        alone = matmul_ops.matmul(x[row : row + 1], matrix.pointer, 70, None)
        assert torch.equal(together[row : row + 1], alone)


def test_the_outputs_of_an_expert() -> None:
    rows = rows_of(LAYOUTS["Q6_K"], (4 * PACK, 512))
    matrix, x = packed(rows), some(3, 512)
    own = matrix.outputs(PACK, 3 * PACK)
    expected = x.float() @ rows.dequantize()[PACK : 3 * PACK].T
    near(matmul_ops.matmul(x, own.pointer, 2 * PACK, None), expected)


@needs_bfloat16
def test_odd_inputs_are_never_dequantized() -> None:
    assert not can_dequantize(63, 64)


@pytest.mark.parametrize("name", ["int4", "int8"])
@pytest.mark.parametrize(
    "are_rounded",
    [pytest.param(True, marks=needs_bytes), pytest.param(False, marks=needs_bfloat16)],
)
def test_many_rows_are_computed_otherwise(name: str, are_rounded: bool) -> None:
    rows = rows_of(LAYOUTS[name], (64, 96))
    linear = PackedQuantized(packed(rows), some(64), ManyRows(5, are_rounded))
    for n in (4, 5):
        x, other = some(n, 96), some(n, 64)
        assert linear.bias is not None
        y = x.float() @ rows.dequantize().T + linear.bias.float()
        for found, expected in (
            (linear(x), y),
            (linear(x, "swish"), F.silu(y)),
            (linear.forward_binary(x, other.clone(), "add"), y + other.float()),
            (linear.forward_binary(x, other.clone(), "mul"), y * other.float()),
        ):
            most = expected.abs().max().item()
            torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=most * ROUNDED)


def moved(weight: Tensor) -> StoredWeight:
    assert isinstance(weight, StoredWeight)
    return weight


def stored(name: str, n_out: int, order: Tensor | None = None) -> StoredWeight:
    matrix = MadeMatrix(rows_of(LAYOUTS[name], (n_out, 512)), order)
    return StoredWeight.of(matrix, (n_out, 512), torch.bfloat16)


@pytest.mark.parametrize("n_rows", [1, 60])
@pytest.mark.parametrize("n_inputs", [512, 300])
@pytest.mark.parametrize(
    ("names", "n_orders"), [(["Q4_K"], 1), (["Q4_K", "Q6_K"], 1), (["Q4_K", "Q4_K"], 2)]
)
def test_a_stored_weight_as_a_layer(
    n_rows: int, n_inputs: int, names: list[str], n_orders: int
) -> None:
    """Its inputs come in other orders, and are all or a share. Several arrangements are joined."""
    orders = [torch.randperm(512) for _ in range(n_orders)] * 2
    parts = [stored(name, 40, order) for name, order in zip(names, orders, strict=False)]
    weight = moved(torch.cat([*parts])[:, :n_inputs])
    bias = some(len(weight))
    linear = packed_linear(weight, bias)
    assert isinstance(linear, PackedQuantized if len(names) == 1 else JoinedPacked)
    assert linear.has_kernel
    assert linear.in_features == n_inputs
    x, other = some(n_rows, n_inputs), some(n_rows, len(weight))
    y = x.float() @ weight.dequantize().T + bias.float()
    for found, expected in (
        (linear(x), y),
        (linear(x, "swish"), F.silu(y)),
        (linear.forward_binary(x, other.clone(), "add"), y + other.float()),
        (linear.forward_binary(x, other.clone(), "mul"), y * other.float()),
    ):
        most = expected.abs().max().item()
        torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=most * ROUNDED)


def test_experts_with_an_order_of_inputs_each() -> None:
    weights = [stored("Q4_K", 40, torch.randperm(512)) for _ in range(3)]
    experts = moved(torch.stack([*weights])[..., 100:300])
    product, x = quantized_experts(experts, torch.device("cpu")), some(3, 200)
    assert isinstance(product, SeparateExperts)
    assert all(isinstance(expert, PackedQuantized) for expert in product.experts)
    for number in range(3):
        near(product.multiply(x, number), x.float() @ experts.dequantize()[number].T)


def test_the_weights_of_a_layer_are_a_matrix_again() -> None:
    weight = stored("Q4_K", 40)
    linear = packed_linear(weight, None)
    assert isinstance(linear, PackedQuantized)
    again = StoredWeight.of(linear.matrices[0], weight.shape, torch.bfloat16)
    assert torch.equal(again.dequantize(), weight.dequantize())


def test_kernels_do_not_compute_every_weight() -> None:
    assert packed_linear(moved(stored("Q4_K", 40).float()), None) is None
    assert packed_linear(moved(stored("Q4_K", 40).t()), None) is None
    groups_of_4 = MadeMatrix(rows_of(Layout(IQ4, (F16._replace(group=4),)), (40, 512)))
    assert packed_linear(StoredWeight.of(groups_of_4, (40, 512), torch.bfloat16), None) is None

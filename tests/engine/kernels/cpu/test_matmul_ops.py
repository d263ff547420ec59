"""Rows times matrices of int8 and int4: near what the numbers stand for, and a row as alone."""

from functools import reduce

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.forward.quantized_linear import PackedQuantized, can_dequantize
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16
from deployments.engine.kernels.cpu.matmul_kernels import ADD, MUL, NONE, SWISH
from deployments.engine.kernels.cpu.matmul_ops import MIN_ROWS_PER_TASK, PackedWeight

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
ULP = 2**-7  # of bfloat16, relative
# Where oneDNN does not multiply bfloat16 the engine never dequantizes, and has no such matrices.
needs_bfloat16 = pytest.mark.skipif(not has_native_bf16(), reason="does not multiply bfloat16")
SIZES = [(64, 96), (100, 64), (33, 128), (3, 32)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


def some(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


def int8(n_out: int, width: int) -> tuple[PackedWeight, Tensor]:
    """And what it stands for."""
    numbers = torch.randint(-128, 128, (n_out, width), dtype=torch.int8)
    scales = (torch.rand(n_out) / 100).bfloat16()
    return matmul_ops.pack_int8(numbers, scales), numbers * scales.float()[:, None]


def int4(n_out: int, width: int, group: int = 32) -> tuple[PackedWeight, Tensor]:
    numbers = torch.randint(0, 16, (n_out, width), dtype=torch.uint8)
    scales, least = (torch.rand(n_out, width // group) / 10).bfloat16(), some(n_out, width // group)
    wide = (per_group.float().repeat_interleave(group, 1) for per_group in (scales, least))
    return matmul_ops.pack_int4(numbers, scales, least), reduce(
        torch.add, (numbers * next(wide), *wide)
    )


MAKERS = {"int8": int8, "int4": int4}


def near(found: Tensor, expected: Tensor) -> None:
    most = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=ULP, atol=most * 1e-4)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
@pytest.mark.parametrize(("n_out", "width"), SIZES)
def test_rows_times_a_matrix_of_whole_numbers(kind: str, rows: int, n_out: int, width: int) -> None:
    packed, weight = MAKERS[kind](n_out, width)
    x, other, bias = some(rows, width), some(rows, n_out), some(n_out)
    for biased in (None, bias):
        y = x.float() @ weight.T + (0 if biased is None else biased.float())
        product = [
            matmul_ops.matmul(x, packed.pointer, n_out, biased, then, other) for then in range(4)
        ]
        near(product[NONE], y)
        near(product[SWISH], F.silu(y))
        near(product[ADD], y + other.float())
        near(product[MUL], y * other.float())


def test_a_matrix_of_int8_without_pairs() -> None:
    packed, weight = int8(40, 63)
    x = some(2, 63)
    near(matmul_ops.matmul(x, packed.pointer, 40, None), x.float() @ weight.T)


def test_groups_of_64() -> None:
    packed, weight = int4(48, 192, group=64)
    x = some(5, 192)
    near(matmul_ops.matmul(x, packed.pointer, 48, None), x.float() @ weight.T)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_row_is_the_same_whatever_stands_beside_it(kind: str) -> None:
    packed, _ = MAKERS[kind](70, 1 << 12)
    x = some(MIN_ROWS_PER_TASK + 15, 1 << 12)
    together = matmul_ops.matmul(x, packed.pointer, 70, None)
    for row in range(len(x)):
        alone = matmul_ops.matmul(x[row : row + 1], packed.pointer, 70, None)
        assert torch.equal(together[row : row + 1], alone)


@needs_bfloat16
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("n_out", [64, 200, 256, 456])
def test_whole_numbers_become_bfloat16_where_onednn_reads_them(
    kind: str, n_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, a part at a time, and where the last part is no whole block."""
    monkeypatch.setattr("deployments.engine.forward.quantized_linear.DEQUANTIZED_BYTES", 50_000)
    packed, weight = MAKERS[kind](n_out, 96)
    assert can_dequantize(96, n_out)
    linear = PackedQuantized(packed, (96, n_out), None, max_kernel_rows=0)
    assert torch.equal(linear(torch.eye(96).bfloat16()), weight.T.bfloat16())


@needs_bfloat16
def test_odd_inputs_are_never_dequantized() -> None:
    assert not can_dequantize(63, 64)


@needs_bfloat16
@pytest.mark.parametrize("kind", MAKERS)
def test_many_rows_are_multiplied_with_them(kind: str) -> None:
    """`max_kernel_rows` is set as where the processor has instructions for that."""
    packed, weight = MAKERS[kind](64, 96)
    linear = PackedQuantized(packed, (96, 64), some(64), max_kernel_rows=4)
    for rows in (4, 5):
        x, other = some(rows, 96), some(rows, 64)
        assert linear.bias is not None
        y = x.float() @ weight.T + linear.bias.float()
        for found, expected in (
            (linear(x), y),
            (linear(x, "swish"), F.silu(y)),
            (linear.forward_binary(x, other.clone(), "add"), y + other.float()),
            (linear.forward_binary(x, other.clone(), "mul"), y * other.float()),
        ):
            most = expected.abs().max().item()
            torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=most * 5e-3)

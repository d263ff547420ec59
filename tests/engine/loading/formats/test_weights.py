"""The weights of each storage format are the numbers that its definition says, bit by bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deployments.engine.loading.formats.methods import formats_of
from deployments.engine.loading.formats.parts import WeightParts
from deployments.engine.loading.formats.scales import as_factor, as_scale
from deployments.engine.loading.formats.table import FP8
from deployments.engine.quantized.layout import FactorType
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.loading.formats.writers import (
    WRITERS,
    Writer,
    Written,
    awq,
    e4m3,
    fp8,
    gptq,
    packed_integers,
    scales,
    spread,
)


def written(writer: Writer, *shape: int, seed: int = 0) -> Written:
    return writer.write(torch.Generator().manual_seed(seed), *shape)


def read(writer: Writer, made: Written) -> StoredWeight:
    """The weight by the first of the formats that its tensors fit."""
    for form in formats_of(writer.options):
        name = "" if form.target else ".weight"
        tensors = {end.removeprefix(name): tensor for end, tensor in made.tensors.items()}
        if form.mark in tensors and form.codes in tensors:
            break
    kept = {end: tensor for end, tensor in tensors.items() if end in form.ends}
    matrix, outer, is_transposed = form.read(WeightParts("x" + name, kept), writer.options)
    weight = StoredWeight.of(matrix, (*outer, matrix.n_inputs), torch.float32)
    return moved(weight.mT) if is_transposed else weight


def moved(weight: Tensor) -> StoredWeight:
    assert isinstance(weight, StoredWeight)
    return weight


def check(writer: Writer, n_out: int, n_in: int, seed: int = 0) -> None:
    made = written(writer, n_out, n_in, seed=seed)
    weight = read(writer, made)
    assert weight.shape == made.weight.shape
    assert torch.equal(weight.dequantize(), made.weight)
    some = torch.randperm(n_out, generator=torch.Generator().manual_seed(seed))[: n_out // 2]
    assert torch.equal(weight.index_select(0, some).dequantize(), made.weight[some])
    middle = weight.narrow(0, n_out // 4, n_out // 2)
    assert torch.equal(middle.dequantize(), made.weight[n_out // 4 :][: n_out // 2])


@pytest.mark.parametrize("name", WRITERS)
def test_weights_are_those_of_the_definition(name: str) -> None:
    check(WRITERS[name], 96, 192)


def test_zeros_that_are_all_one_need_nothing_added() -> None:
    for writer in (gptq(), gptq(v2=True), packed_integers()):
        (matrix,) = read(writer, written(writer, 64, 64)).place.matrices
        assert matrix.layout.least == ()
        assert matrix.layout.codebook.offset == -8


def test_scales_keep_their_types_if_kernels_read_them() -> None:
    types = {
        torch.float32: torch.float32,
        torch.bfloat16: torch.bfloat16,
        torch.float8_e8m0fnu: torch.bfloat16,
    }
    for stored, given_type in types.items():
        writer = fp8((32, 32), dtype=stored)
        (matrix,) = read(writer, written(writer, 64, 96)).place.matrices
        assert matrix.layout.scale == (FactorType(given_type, 32),)


def test_all_exponents_are_exact() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    powers = as_factor(as_scale(every)).double()
    assert torch.equal(powers[:-1], torch.exp2(every[:-1].double() - 127))
    assert powers[-1].isnan()


@pytest.mark.parametrize(
    ("scale_shape", "block"),
    [((3, 2, 3), (32, 32)), ((3, 1, 1), (64, 96)), ((3,), (64, 96)), ((3, 64, 1), (1, 96)),
     ((3, 64), (1, 96)), ((1,), (64, 96))],
)  # fmt: skip
def test_experts_may_be_in_one_tensor(scale_shape: tuple[int, ...], block: tuple[int, int]) -> None:
    random = torch.Generator().manual_seed(0)
    codes, scale = e4m3(random, 3, 64, 96), scales(random, *scale_shape, dtype=torch.float32)
    rows, columns = 64 // block[0], 96 // block[1]
    by_expert = scale.expand(3) if scale_shape == (1,) else scale
    expected = codes.float() * spread(by_expert.reshape(3, rows, columns), block, (64, 96))
    form, parts = FP8[0], WeightParts("gate_up_proj", {"": codes, "_scale_inv": scale})
    matrix, outer, _ = form.read(parts, {"weight_block_size": [32, 32]})
    weight = StoredWeight.of(matrix, (*outer, 96), torch.float32)
    assert torch.equal(weight.dequantize(), expected)


def test_blocks_of_modelopt_have_four_dimensions() -> None:
    random = torch.Generator().manual_seed(0)
    codes, scale = e4m3(random, 256, 384), scales(random, 2, 1, 3, 1, dtype=torch.float32)
    parts = WeightParts("x.weight", {"": codes, "_scale": scale})
    matrix, outer, _ = FP8[1].read(parts, {})
    weight = StoredWeight.of(matrix, (*outer, 384), torch.float32)
    expected = codes.float() * spread(scale.view(2, 3), (128, 128), (256, 384))
    assert torch.equal(weight.dequantize(), expected)


sizes = st.integers(1, 5)
seeds = st.integers(0, 1 << 30)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 150), columns=sizes, block=st.sampled_from([16, 24, 128]), wide=sizes,
    seed=seeds,
)  # fmt: skip
def test_blocks_of_any_size_may_be_cut_off(
    rows: int, columns: int, block: int, wide: int, seed: int
) -> None:
    check(fp8((block, 8 * wide)), rows, 16 * columns, seed)


@settings(deadline=None, max_examples=40)
@given(
    outputs=sizes, inputs=sizes, group=st.sampled_from([32, 64, 96]),
    bits=st.sampled_from([2, 4, 8]), symmetric=st.booleans(), is_sorted=st.booleans(), seed=seeds,
)  # fmt: skip
def test_groups_of_any_size_and_order(
    outputs: int, inputs: int, group: int, bits: int, symmetric: bool, is_sorted: bool, seed: int
) -> None:
    shape = 32 * outputs, group * inputs
    check(gptq(bits, group, symmetric=symmetric, desc_act=not is_sorted), *shape, seed)
    writer = packed_integers(bits, group, symmetric=symmetric, actorder=not is_sorted)
    check(writer, outputs * 7, shape[1], seed)


@settings(deadline=None, max_examples=20)
@given(outputs=sizes, groups=sizes, group=st.sampled_from([16, 32, 128]), seed=seeds)
def test_words_of_awq(outputs: int, groups: int, group: int, seed: int) -> None:
    check(awq(group), 8 * outputs, group * groups, seed)


def test_a_last_group_that_is_smaller() -> None:
    check(gptq(group=64, desc_act=True), 32, 96)
    check(gptq(group=64), 32, 160)

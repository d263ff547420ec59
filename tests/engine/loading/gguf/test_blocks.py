"""Blocks become the numbers that the package `gguf` makes of them, bit for bit."""

from math import prod
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from deployments.engine.loading.formats.mapped_file import MappedFile
from deployments.engine.loading.gguf.block_types import BLOCK_TYPES, OTHER_NAMES
from deployments.engine.loading.gguf.stored_tensor import dequantize
from deployments.engine.loading.gguf.tensors import GGUFTensor
from tests.effort import tries

# Where a block has its scales in float16. Its other bytes may have any value.
HALVES: dict[str, list[int]] = {
    "F32": [],
    "F16": [0],
    "BF16": [],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
    "NVFP4": [],
}
BY_NAME = {block_type.name: block_type for block_type in BLOCK_TYPES.values()}
PLAIN = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "F64": np.float64}


def random_blocks(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.uint8]:
    """Bytes [..., blocks, bytes of a block] whose scales are finite."""
    generator = np.random.default_rng(seed)
    return finite(name, generator.integers(0, 256, (*shape, BY_NAME[name].n_bytes), np.uint8))


def finite(name: str, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    for at in HALVES[name]:
        high = blocks[..., at + 1]
        high[high & 0x7C == 0x7C] &= np.uint8(0xBF)  # the exponent of infinity and of no numbers
    if name == "NVFP4":
        # The package takes 0x7F for 0 and 0xFF, which no file has, for 480. We take both for 0.
        scales = blocks[..., :4]
        scales[scales == 0xFF] = 0x7F
    return blocks


def write(folder: Path, name: str, blocks: NDArray[np.uint8]) -> GGUFTensor:
    """A tensor of blocks [..., blocks, bytes of a block] behind 5 bytes of something else."""
    path = folder / "tensor"
    path.write_bytes(bytes(5) + blocks.tobytes())
    shape = (*blocks.shape[:-2], blocks.shape[-2] * BY_NAME[name].n_weights)
    file = MappedFile(path, path.stat().st_size)
    return GGUFTensor(name, shape, BY_NAME[name].id, 5, file)


def bits(weights: NDArray[np.float32]) -> NDArray[np.uint32]:
    assert weights.dtype == np.float32
    return weights.view(np.uint32)


def theirs(name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The weights of [rows, blocks, bytes of a block] by the package: [rows, weights]."""
    with np.errstate(over="ignore"):  # the largest scales of MXFP4
        rows = blocks.reshape(len(blocks), -1)
        found: NDArray[np.float32] = gguf.dequantize(rows, GGMLQuantizationType[name])
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def test_types_are_those_of_the_package() -> None:
    for block_type in BLOCK_TYPES.values():
        kind = GGMLQuantizationType(block_type.id)
        assert kind.name == block_type.name
        sizes = gguf.GGML_QUANT_SIZES[kind]
        assert sizes == (block_type.n_weights, block_type.n_bytes)
    known = {block_type.id: block_type.name for block_type in BLOCK_TYPES.values()}
    assert {kind.value: kind.name for kind in GGMLQuantizationType}.items() <= {
        **known,
        **OTHER_NAMES,
    }.items()
    assert not known.keys() & OTHER_NAMES.keys()


@pytest.mark.parametrize("name", HALVES)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    seed=st.integers(0, 2**32 - 1),
    ends=st.tuples(*[st.none() | st.integers(-9, 70)] * 2),
)
def test_any_rows_are_dequantized_bit_for_bit(
    name: str,
    folder: Path,
    shape: tuple[int, ...],
    seed: int,
    ends: tuple[int | None, int | None],
) -> None:
    blocks = random_blocks(name, shape, seed)
    tensor = write(folder, name, blocks)
    expected = theirs(name, blocks.reshape(prod(shape[:-1]), shape[-1], -1))
    assert np.array_equal(bits(dequantize(tensor).numpy()), bits(expected))
    start, stop = ends
    assert np.array_equal(bits(dequantize(tensor, start, stop).numpy()), bits(expected[start:stop]))


@pytest.mark.parametrize("name", HALVES)
def test_many_blocks_are_dequantized_bit_for_bit(name: str, folder: Path) -> None:
    """So many that every value of every byte, and many scales, are among them."""
    n_rows = tries(1 << 19, 1 << 23) // BY_NAME[name].n_weights // 4 + 1
    blocks = random_blocks(name, (n_rows, 4), 0)
    assert np.array_equal(
        bits(dequantize(write(folder, name, blocks)).numpy()), bits(theirs(name, blocks))
    )


@pytest.mark.parametrize("name", HALVES)
def test_blocks_of_equal_bytes_are_dequantized_bit_for_bit(name: str, folder: Path) -> None:
    """Zeros have the signs that they have there."""
    width = BY_NAME[name].n_bytes
    blocks = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], width, axis=2)
    blocks = finite(name, blocks)
    assert np.array_equal(
        bits(dequantize(write(folder, name, blocks)).numpy()), bits(theirs(name, blocks))
    )


@pytest.mark.parametrize("name", PLAIN)
def test_numbers_are_converted(name: str, folder: Path) -> None:
    values = np.array([[0, 1, -1], [127, -128, 100]], PLAIN[name])
    tensor = write(folder, name, values.view(np.uint8).reshape(2, 3, -1))
    assert bits(dequantize(tensor).numpy()).tolist() == bits(values.astype(np.float32)).tolist()


@pytest.mark.parametrize("name", HALVES)
def test_scales_that_are_no_numbers_are_no_error(name: str, folder: Path) -> None:
    blocks = np.full((2, 3, BY_NAME[name].n_bytes), 0xFF, np.uint8)
    assert dequantize(write(folder, name, blocks)).shape == (2, 3 * BY_NAME[name].n_weights)


def test_bytes_are_not_copied_and_torch_takes_them(folder: Path) -> None:
    blocks = random_blocks("Q4_K", (3, 5, 2), 0)
    tensor = write(folder, "Q4_K", blocks)
    rows = tensor.rows(4, 11)
    assert (rows.shape, tensor.row_bytes) == ((7, 288), 288)
    assert np.array_equal(rows, blocks.reshape(15, 288)[4:11])
    assert torch.equal(torch.from_numpy(rows), torch.from_numpy(rows.copy()))
    assert np.shares_memory(rows, tensor.rows())


def test_what_is_written_to_bytes_does_not_reach_the_file(folder: Path) -> None:
    tensor = write(folder, "Q8_0", random_blocks("Q8_0", (3, 5), 0))
    before = tensor.file.path.read_bytes()
    tensor.rows()[:] = 7
    assert tensor.file.path.read_bytes() == before

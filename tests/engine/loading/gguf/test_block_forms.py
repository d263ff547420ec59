"""Blocks that are packed where they lie give, to the bit, what rows give that are read."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.kernels.cpu.packed_weight import empty, pack_rows
from deployments.engine.kernels.cpu.simd import PACK
from deployments.engine.loading.gguf.block_forms import BLOCK_FORMS
from deployments.engine.loading.gguf.stored_tensor import GGUFMatrix
from deployments.engine.loading.gguf.unpacking import UNPACK
from deployments.engine.quantized.block_rows import BlockRows
from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.loading.gguf.test_blocks import BY_NAME, random_blocks, write

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
N_ROWS, N_MORE = 75, 38  # no whole blocks of outputs


class OnlyRead:
    """The same rows, of which nobody knows where they lie."""

    def __init__(self, weight: StoredWeight) -> None:
        self._weight = weight

    def read(self, first: int, end: int) -> QuantizedRows:
        return self._weight.read(first, end)

    def block_rows(self, first: int, end: int) -> BlockRows | None:
        return None


def stored(folder: Path, name: str, n_rows: int, n_blocks: int = 4, seed: int = 0) -> StoredWeight:
    folder.mkdir()
    matrix = GGUFMatrix(write(folder, name, random_blocks(name, (n_rows, n_blocks), seed)))
    return StoredWeight.of(matrix, (n_rows, matrix.n_inputs), torch.bfloat16)


def joined(folder: Path, name: str) -> StoredWeight:
    """Rows of two tensors, some in another order and some left out, and some of their inputs."""
    first, second = stored(folder / "a", name, N_ROWS), stored(folder / "b", name, N_MORE, seed=1)
    order = torch.randperm(N_ROWS, generator=torch.Generator().manual_seed(0))[:70]
    size = BY_NAME[name].n_weights
    both = torch.cat([first.index_select(0, order), second[3:]])[:, size : 3 * size]
    assert isinstance(both, StoredWeight)
    return both


def packed(rows: StoredWeight | OnlyRead, weight: StoredWeight) -> Tensor:
    n_out, n_in = weight.shape
    made = pack_rows(rows, weight.read(0, 1).layout, n_out, n_in, n_threads=2)
    assert made is not None
    return made.weights


@pytest.mark.parametrize("name", BLOCK_FORMS)
def test_rows_are_packed_where_they_lie(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads pack them, a piece after the other."""
    at_once = "deployments.engine.kernels.cpu.packed_weight.BLOCK_WEIGHTS_AT_ONCE"
    monkeypatch.setattr(at_once, 64 * 2 * BY_NAME[name].n_weights)
    weight = joined(tmp_path, name)
    assert weight.block_rows(0, len(weight)) is not None
    assert torch.equal(packed(weight, weight), packed(OnlyRead(weight), weight))


@pytest.mark.parametrize("name", UNPACK)
def test_packed_weights_take_the_memory_of_their_file(name: str, tmp_path: Path) -> None:
    """A whole number of blocks of outputs, and an odd one of inputs where each begins with a cache
    line. Exponents of MXFP4 become bfloat16."""
    n_inputs = 5 * 256 * 32 // PACK
    weight = stored(tmp_path / "a", name, 2 * PACK, n_inputs // BY_NAME[name].n_weights)
    found = empty(weight.read(0, 1).layout, *weight.shape)
    assert found is not None
    more = weight.numel() // 32 if name == "MXFP4" else 0
    assert found.weights.nbytes == weight.nbytes + more


def test_rows_that_are_no_whole_blocks_are_read(tmp_path: Path) -> None:
    whole = stored(tmp_path / "a", "Q4_K", N_ROWS)
    other = stored(tmp_path / "b", "Q5_K", N_MORE)
    padded = torch.nn.functional.pad(whole, (0, 0, 0, 5))
    for weight in (padded, whole[:, 64:320], torch.cat([whole, other])):
        assert isinstance(weight, StoredWeight)
        assert weight.block_rows(0, len(weight)) is None
    assert isinstance(padded, StoredWeight)
    assert torch.equal(packed(padded, padded), packed(OnlyRead(padded), padded))

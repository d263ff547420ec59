"""A stored weight follows what models do to its rows and inputs, and nothing of it is read."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.quantized.made import MadeMatrix, random_rows, random_weight

MATRIX = (12, 64)
EXPERTS = (3, 12, 64)
MOVES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "outputs": (MATRIX, lambda weight: weight[3:9]),
    "inputs": (MATRIX, lambda weight: weight.narrow(-1, 32, 32)),
    "inputs that part a group": (MATRIX, lambda weight: weight[:, 16:48]),
    "chunks": (MATRIX, lambda weight: torch.cat([*weight.chunk(3)][::-1])),
    "chunks of inputs": (MATRIX, lambda weight: weight.chunk(2, -1)[1]),
    "its own copy": (MATRIX, lambda weight: weight.detach().clone().to(torch.float64).float()),
    "zeros behind": (MATRIX, lambda weight: F.pad(weight, (0, 0, 0, 1))),
    "order of rows": (MATRIX, lambda weight: weight.index_select(0, torch.tensor([7, 1, 1]))),
    "halves of heads": (
        MATRIX,
        lambda weight: weight.view(2, 3, 2, 64).transpose(1, 2).reshape(12, 64),
    ),
    "joined": (MATRIX, lambda weight: torch.cat([weight, weight[:2]])),
    "an expert": (EXPERTS, lambda weight: weight[1]),
    "outputs of all experts": (EXPERTS, lambda weight: weight.narrow(1, 4, 4)),
    "halves of all experts": (EXPERTS, lambda weight: torch.cat(weight.chunk(2, 1)[::-1], 1)),
    "experts stacked": (EXPERTS, lambda weight: torch.stack([weight[2], weight[0]])),
    "inputs first": (EXPERTS, lambda weight: weight.transpose(1, 2)[:, 32:, 2:7]),
    "inputs first, an expert": (EXPERTS, lambda weight: weight.mT[2]),
}


def dense(weight: Tensor) -> Tensor:
    return weight.dequantize() if isinstance(weight, StoredWeight) else weight


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("coarse_group", [0, 64])
def test_moved_weights_are_those_of_moved_numbers(name: str, coarse_group: int) -> None:
    shape, move = MOVES[name]
    weight = random_weight(shape, has_least=True, coarse_group=coarse_group)
    (matrix,) = weight.place.matrices
    assert isinstance(matrix, MadeMatrix)
    moved = move(weight)
    assert isinstance(moved, StoredWeight)
    assert matrix.n_read == 0
    expected = move(weight.dequantize())
    assert moved.shape == expected.shape
    assert torch.equal(moved.dequantize(), expected)


def test_weights_of_several_matrices_are_joined_and_parted() -> None:
    weights = [random_weight((n, 64), seed=n) for n in (4, 6, 2)]
    joined = torch.cat([*weights])
    assert isinstance(joined, StoredWeight)
    expected = torch.cat([weight.dequantize() for weight in weights])
    assert torch.equal(joined.dequantize(), expected)
    again = torch.cat([joined[9:], joined[1:5], weights[0]])
    assert isinstance(again, StoredWeight)
    assert torch.equal(again.dequantize(), torch.cat([expected[9:], expected[1:5], expected[:4]]))
    assert [len(run.rows) for run in again.runs()] == [1, 2, 3, 1, 4]
    assert torch.equal(again.read(2, 8).dequantize(), again.dequantize()[2:8])


def test_other_operations_are_computed() -> None:
    weight = random_weight(MATRIX)
    linear = nn.Linear(64, 12, bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    assert isinstance(linear.weight.data, StoredWeight)
    x = torch.randn(5, 64)
    with torch.inference_mode():
        assert torch.equal(linear(x), F.linear(x, weight.dequantize()))
    assert torch.equal(x @ weight.t(), x @ weight.dequantize().t())
    ids = torch.tensor([[3, 0], [11, 3]])
    assert torch.equal(F.embedding(ids, weight), F.embedding(ids, weight.dequantize()))
    (matrix,) = weight.place.matrices
    assert isinstance(matrix, MadeMatrix)


def test_an_embedding_reads_the_rows_that_it_needs() -> None:
    weight = random_weight(MATRIX)
    F.embedding(torch.tensor([3, 5]), weight)
    (matrix,) = weight.place.matrices
    assert isinstance(matrix, MadeMatrix)
    assert matrix.n_read == 2


def test_its_numbers_can_not_be_changed() -> None:
    with pytest.raises(TypeError, match="can't change"):
        random_weight(MATRIX).add_(1)


def test_inputs_in_another_order_stay_together() -> None:
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    rows = random_rows(MATRIX)
    weight = StoredWeight.of(MadeMatrix(rows, order), MATRIX, torch.float32)
    x = torch.randn(64)
    torch.testing.assert_close(weight.dequantize() @ x, rows.dequantize() @ x[order])
    with pytest.raises(UnsupportedModelError, match="another order"):
        weight.chunk(2, -1)


def test_it_counts_the_bytes_of_its_share() -> None:
    weight = random_weight(MATRIX)
    assert weight.nbytes == 12 * 64
    assert weight[:3, :32].nbytes == 3 * 32

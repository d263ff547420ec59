"""A stored weight follows what models do to its rows and inputs, and nothing of it is read."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.quantized.input_share import GROUP, ordered
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


def ordered_weight(
    shape: tuple[int, int], seed: int = 0, group: int = 32, coarse_group: int = 0
) -> StoredWeight:
    order = torch.randperm(shape[1], generator=torch.Generator().manual_seed(seed))
    rows = random_rows(shape, group=group, coarse_group=coarse_group, has_least=True, seed=seed)
    return StoredWeight.of(MadeMatrix(rows, order), shape, torch.float32)


def test_inputs_may_be_stored_in_another_order() -> None:
    weight, x = ordered_weight(MATRIX), torch.randn(64)
    columns = weight.read(0, 12).dequantize() @ ordered(x, weight.input_order)
    torch.testing.assert_close(weight.dequantize() @ x, columns)


@pytest.mark.parametrize("options", [{}, {"group": 64}, {"group": 16, "coarse_group": 32}])
def test_inputs_that_are_stored_in_another_order_are_shared(options: dict[str, int]) -> None:
    """A share has the factors of all its groups, whose columns stay together."""
    weight = ordered_weight(MATRIX, **options)
    numbers, x = weight.dequantize(), torch.randn(64)
    for first, end in ((0, 32), (32, 64), (5, 29)):
        share = weight[:, first:end]
        assert isinstance(share, StoredWeight)
        assert share.shape == (12, end - first)
        assert torch.equal(share.dequantize(), numbers[:, first:end])
        rows = share.read(2, 5)
        assert rows.codes.shape[1] == share.n_columns
        assert options.get("group") == 64 or share.n_columns % GROUP == 0
        found = rows.dequantize() @ ordered(x[first:end], share.input_order)
        torch.testing.assert_close(found, numbers[2:5, first:end] @ x[first:end])
        again = share[3:9, 4:11]
        assert torch.equal(again, numbers[3:9, first + 4 : first + 11])
        share.let_go()
    (matrix,) = weight.place.matrices
    assert isinstance(matrix, MadeMatrix)
    assert matrix.is_let_go


def test_a_share_that_would_take_more_than_its_numbers_is_dequantized() -> None:
    """Few of many groups' columns are in it, and each group is filled up."""
    share = ordered_weight((4, 512)).bfloat16()[:, :64]
    assert not isinstance(share, StoredWeight)
    assert isinstance(ordered_weight((4, 512)).bfloat16()[:, :256], StoredWeight)


def test_experts_may_have_an_order_of_inputs_each() -> None:
    weights = [ordered_weight(MATRIX, seed) for seed in range(3)]
    weights.append(random_weight(MATRIX, has_least=True))
    experts = torch.stack([*weights])
    assert isinstance(experts, StoredWeight)
    numbers = torch.stack([weight.dequantize() for weight in weights])
    assert torch.equal(experts.dequantize(), numbers)
    share = experts[:, 2:7, 21:50]
    assert isinstance(share, StoredWeight)
    assert torch.equal(share.dequantize(), numbers[:, 2:7, 21:50])
    assert {matrix.n_columns for matrix in share.place.matrices} == {share.n_columns}
    assert len(share.matrix(1).by_arrangement()) == 1
    joined = torch.cat([weights[0], weights[1][:4], weights[1][6:], weights[3]])
    assert isinstance(joined, StoredWeight)
    assert [len(part) for part in joined.by_arrangement()] == [12, 10, 12]


def test_it_counts_the_bytes_of_its_share() -> None:
    weight = random_weight(MATRIX)
    assert weight.nbytes == 12 * 64
    assert weight[:3, :32].nbytes == 3 * 32

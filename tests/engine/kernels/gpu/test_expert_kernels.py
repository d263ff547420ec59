"""Experts and routers, interpreted, beside transformers' loop over experts and torch's choices."""

from collections.abc import Iterator

import pytest

from deployments.engine.kernels.experts import SIGMOID, SOFTMAX, Routing
from tests.engine.kernels.gpu.experts import (
    Sparse,
    answered,
    launched,
    wrong_blocks,
    wrong_routes,
)
from tests.engine.kernels.gpu.interpreter import Interpreter, interpreter, needs_triton
from tests.engine.kernels.gpu.paged import DTYPES

pytestmark = needs_triton
CASES = {
    "few": Sparse(tokens=2, n_experts=16),  # they are not grouped
    "grouped": Sparse(tokens=5),
    "all to one": Sparse(tokens=18, only=1),
    "interleaved": Sparse("gpt_oss", dtype="bfloat16"),
    "without gates": Sparse("nemotron_h", dtype="float16"),
}
EPSILON = 1e-20
# By rule, how many experts there are, and whether a correction is added to scores for the choice.
ROUTINGS: dict[str, tuple[Routing, int, bool]] = {
    "softmax": (Routing(3, SOFTMAX, is_normed=True, epsilon=EPSILON), 12, False),
    "corrected sigmoid": (Routing(2, SIGMOID, factor=2.5), 10, True),
    "groups": (Routing(3, SIGMOID, False, n_groups=4, n_chosen_groups=2, is_normed=True), 16, True),
    "groups by their best": (
        Routing(2, SOFTMAX, n_groups=3, n_chosen_groups=2, best_of_group=1), 15, False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Interpreter]:
    with interpreter() as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_experts_answer_as_a_loop_over_them(interpreted: Interpreter, name: str) -> None:
    """A token's bits are those that it gets alone."""
    found, differing = interpreted(answered, CASES[name])
    assert found < DTYPES[CASES[name].dtype]
    assert differing == []


@pytest.mark.parametrize(("tokens", "k", "n_experts"), [(1, 1, 3), (5, 2, 60), (300, 2, 5)])
def test_tokens_are_grouped_by_experts(
    interpreted: Interpreter, tokens: int, k: int, n_experts: int
) -> None:
    assert interpreted(wrong_blocks, tokens, k, n_experts) == []


@pytest.mark.parametrize("name", ROUTINGS)
def test_experts_are_chosen_as_by_torch(interpreted: Interpreter, name: str) -> None:
    assert interpreted(wrong_routes, *ROUTINGS[name], 4) == []


def test_few_launches_compute_experts(interpreted: Interpreter) -> None:
    products = ["expert_product_kernel", "expert_product_kernel", "weighted_sum_kernel"]
    assert interpreted(launched, Sparse(tokens=1, n_experts=16)) == products
    assert interpreted(launched, Sparse(tokens=1)) == ["choose_kernel", *products]

"""Products of quantized weights, interpreted, beside those of the numbers that they stand for."""

import pytest

from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton
from tests.engine.kernels.gpu.paged import DTYPES
from tests.engine.kernels.gpu.quantized import (
    LAYOUTS,
    experts_answered,
    multiplied,
    read,
    with_all_else,
)

pytestmark = needs_triton


# The same layouts with inputs of other types, and in larger matrices.
VARIANTS = frozenset(name for name in LAYOUTS if " of " in name or " in splits" in name)
# Each size of tokens has a kernel of its own. These have each way to make numbers of codes.
OF_ALL_SIZES = ("Q4_0", "Q6_K", "Q8_0", "NF4", "fp8 by rows", "Q4_K in splits")


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in VARIANTS])
def test_rows_are_read_as_they_were_stored(interpreted: Interpreter, name: str) -> None:
    assert interpreted(read, LAYOUTS[name]) == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_token_has_the_same_product_alone_and_among_others(
    interpreted: Interpreter, name: str
) -> None:
    case = LAYOUTS[name]
    found, differing = interpreted(multiplied, case, 17 if name in OF_ALL_SIZES else 8)
    assert found < DTYPES[case.dtype]
    assert differing == []


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0 of float32", "fp8 by blocks", "GPTQ, a share"])
def test_many_tokens_are_multiplied_with_dequantized_weights(
    interpreted: Interpreter, name: str
) -> None:
    assert interpreted(multiplied, LAYOUTS[name], 33)[0] < DTYPES[LAYOUTS[name].dtype]


@pytest.mark.parametrize(("tokens", "dtype"), [(2, "float32"), (2, "bfloat16"), (40, "bfloat16")])
def test_what_follows_a_product_is_added(interpreted: Interpreter, tokens: int, dtype: str) -> None:
    found = interpreted(with_all_else, dtype, tokens)
    assert all(error < DTYPES[dtype] for error in found.values()), found


@pytest.mark.parametrize(("tokens", "dtype"), [(5, "float32"), (9, "bfloat16")])
def test_experts_answer_all_tokens_at_once(
    interpreted: Interpreter, tokens: int, dtype: str
) -> None:
    found, differing = interpreted(experts_answered, tokens, dtype)
    assert found < DTYPES[dtype]
    assert differing == []


def test_experts_answer_many_tokens(interpreted: Interpreter) -> None:
    assert interpreted(experts_answered, 33, "float32")[0] < DTYPES["float32"]

"""The kernels of adapters, interpreted, against the same by torch."""

import pytest

from tests.engine.kernels.gpu.adapted import added
from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-4), ("bfloat16", 0.1)])
@pytest.mark.parametrize(
    ("slots", "new_len"),
    [([2], [1]), ([4, 0, 1, 4, 3], [1, 1, 1, 1, 1]), ([0, 1, 3], [2, 37, 1])],
)
def test_what_adapters_add_is_the_product(
    interpreted: Interpreter, slots: list[int], new_len: list[int], dtype: str, allowed: float
) -> None:
    error, is_kept = interpreted(added, slots, new_len, dtype)
    assert error < allowed
    assert is_kept

"""The kernels between a layer's products, interpreted, against the same written out."""

from dataclasses import replace

import pytest

from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton
from tests.engine.kernels.gpu.layers import Joined, gated, made_float8, normed, turned_and_stored
from tests.engine.kernels.gpu.paged import DTYPES

pytestmark = needs_triton
JOINED = {
    "plain": Joined(),
    "normed": Joined(normed=True),
    "partly turned": Joined(normed=True, plus=1.0, rotated=6),
    "neighbours turned": Joined(normed=True, rotated=6, is_interleaved=True),
    "normed last": Joined(normed=True, norms_behind=True, scaled=True),
    "one token": Joined(tokens=2, heads=32, kv_heads=8, head_dim=128),
    "large heads": Joined(heads=3, kv_heads=3, head_dim=256, normed=True),
    "heads of no power of two": Joined(head_dim=80, heads=9, kv_heads=3),
    "pages of one byte": Joined(dtype="bfloat16", fp8_pages=True),
}
FP8_ERROR = 0.13  # the interpreter cuts where a GPU rounds


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", JOINED)
def test_queries_are_turned_and_keys_and_values_stored(
    interpreted: Interpreter, kind: str, dtype: str
) -> None:
    case = replace(JOINED[kind], dtype=dtype)
    found = interpreted(turned_and_stored, case)
    assert found.pop("others") == 0
    allowed = FP8_ERROR if case.fp8_pages else DTYPES[dtype]
    assert found.pop("queries") < DTYPES[dtype]
    assert all(error < allowed for error in found.values()), found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(1, 64), (3, 1000), (2, 5000)])
def test_rows_are_normed(interpreted: Interpreter, tokens: int, width: int, dtype: str) -> None:
    assert interpreted(normed, tokens, width, dtype) < DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(1, 64), (3, 1000), (2, 2500)])
def test_a_gate_is_applied(interpreted: Interpreter, tokens: int, width: int, dtype: str) -> None:
    assert interpreted(gated, tokens, width, dtype) < DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(2, 16), (3, 1000), (2, 4100)])
def test_rows_become_float8(interpreted: Interpreter, tokens: int, width: int, dtype: str) -> None:
    numbers, scales = interpreted(made_float8, tokens, width, dtype)
    assert numbers < FP8_ERROR
    assert scales < 1e-6

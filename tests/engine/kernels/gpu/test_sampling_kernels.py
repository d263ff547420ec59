"""The kernels of top-p and of the draw, interpreted, against plain references."""

from tests.engine.kernels.gpu.draws import wrong_draws, wrong_sums
from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton
from tests.engine.kernels.gpu.nuclei import wrong_rows

pytestmark = needs_triton


def test_the_fewest_of_the_likeliest_tokens_stay(interpreted: Interpreter) -> None:
    for vocab, spread, step in ((600, 2.0, 0.0), (4200, 1.0, 0.25), (900, 3.0, 8.0)):
        assert interpreted(wrong_rows, vocab, spread, step) == []


def test_the_greatest_sum_is_drawn(interpreted: Interpreter) -> None:
    assert [interpreted(wrong_draws, vocab) for vocab in (7, 4500)] == [0, 0]


def test_noise_is_the_same_to_the_bit(interpreted: Interpreter) -> None:
    assert interpreted(wrong_sums, 90) == 0

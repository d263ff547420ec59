"""The kernel of top-p, interpreted, against sorted rows."""

from tests.engine.kernels.gpu.interpreter import interpreter, needs_triton
from tests.engine.kernels.gpu.nuclei import wrong_rows

pytestmark = needs_triton


def test_the_fewest_of_the_likeliest_tokens_stay() -> None:
    with interpreter() as interpreted:
        for vocab, spread, step in ((600, 2.0, 0.0), (4200, 1.0, 0.25), (900, 3.0, 8.0)):
            assert interpreted(wrong_rows, vocab, spread, step) == []

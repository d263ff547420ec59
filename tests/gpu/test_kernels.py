"""The kernels and CUDA graphs on a GPU keep the laws that interpreted kernels keep."""

from dataclasses import replace

import pytest
import torch

from deployments.engine.attention.flash import FlashAttention, flash_version
from deployments.engine.forward.cuda_graphs import CudaGraphCapture
from tests.engine.forward.paged_models import captured_and_eager_logits, max_logit_error
from tests.engine.kernels.gpu.draws import wrong_draws, wrong_sums
from tests.engine.kernels.gpu.layers import gated, made_float8, normed, turned_and_stored
from tests.engine.kernels.gpu.nuclei import wrong_rows
from tests.engine.kernels.gpu.paged import (
    DTYPES,
    Case,
    error,
    lay_out,
    output,
    rows_that_differ_alone,
    slots_written,
    whole_and_chunked,
)
from tests.engine.kernels.gpu.test_attention_kernels import MIXED, VARIANTS
from tests.engine.kernels.gpu.test_layer_kernels import JOINED
from tests.models import BY_ROWS, CONFIGS, STATES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FOLLOW_UP = ((9000, 17), (2040, 40), (0, 100), (4095, 1))
LONG = ((9000, 1), (700, 300), (0, 1), (0, 0), (0, 513), (4095, 1))
# Heads, key heads, head size, and how many of a key's numbers are its value, if they are.
SHAPES: dict[str, tuple[int, int, int, int | None]] = {
    "llama": (32, 8, 128, None),
    "qwen": (14, 2, 64, None),
    "gemma": (8, 4, 256, None),
    "phi": (32, 32, 96, None),
    "old": (8, 8, 80, None),
    "deepseek": (128, 1, 576, 512),
    "minicpm": (40, 1, 288, 256),
}


def case(shape: str, dtype: str, rows: tuple[tuple[int, int], ...] = LONG) -> Case:
    return Case(rows, *SHAPES[shape], page_size=16, dtype=dtype, small_tiles=False)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_what_it_should_be(variant: str) -> None:
    assert error(VARIANTS[variant], "cuda") < DTYPES["float32"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_what_it_should_be(shape: str, dtype: str) -> None:
    assert error(case(shape, dtype), "cuda") < DTYPES[dtype]


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("fp8_pages", [False, True])
def test_options_in_bfloat16_are_what_they_should_be(
    window: int | None, softcap: float | None, sinks: bool, fp8_pages: bool
) -> None:
    options = {"window": window, "softcap": softcap, "sinks": sinks, "fp8_pages": fp8_pages}
    assert error(replace(case("llama", "bfloat16"), **options), "cuda") < DTYPES["bfloat16"]  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_batched_equals_alone_to_the_last_bit(shape: str, dtype: str) -> None:
    assert rows_that_differ_alone(case(shape, dtype), "cuda") == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_chunk_has_the_same_bits_from_one_program_and_from_one_for_each_split(
    shape: str, dtype: str
) -> None:
    follow_up = case(shape, dtype, FOLLOW_UP)
    assert error(follow_up, "cuda") < DTYPES[dtype]
    alone, *shared = (output(replace(follow_up, multiprocessors=n), "cuda") for n in (1, 40, 1000))
    assert all(torch.equal(alone, result) for result in shared)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("shape", ["llama", "deepseek"])
def test_chunked_equals_whole_to_the_last_bit(shape: str, dtype: str, window: int | None) -> None:
    one_row = replace(case(shape, dtype, ((1900, 700),)), window=window)
    whole, chunked = whole_and_chunked(one_row, [2037, 2100, 2377], "cuda")
    assert torch.equal(whole, chunked)


def test_only_the_new_tokens_are_written() -> None:
    changed, new = slots_written(Case(MIXED), "cuda")
    assert changed == new


@pytest.mark.parametrize("architecture", sorted(CONFIGS.keys() - STATES - BY_ROWS))
def test_a_model_has_the_same_logits_through_the_kernels(architecture: str) -> None:
    assert max_logit_error(architecture, "cuda") < 1e-3


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "mistral", "qwen3"])
def test_captured_steps_have_the_logits_of_eager_ones(architecture: str) -> None:
    for captured, eager in captured_and_eager_logits(architecture, CudaGraphCapture(), "cuda"):
        torch.testing.assert_close(captured, eager, rtol=1e-4, atol=1e-4)


def test_captured_decodes_of_as_many_rows_are_exact() -> None:
    for captured, eager in captured_and_eager_logits(
        "llama", CudaGraphCapture(), "cuda", max_rows=3, replays_chunks=False
    ):
        assert torch.equal(captured, eager)


@pytest.mark.parametrize("window", [None, 128])
def test_flash_attention_computes_the_same_as_our_chunk_kernel(window: int | None) -> None:
    if flash_version() is None:
        pytest.skip("needs FlashAttention 3 or 4")
    layer = lay_out(replace(case("llama", "bfloat16"), window=window), "cuda")
    out, ours = layer.attend(through=FlashAttention.from_triton), layer.attend()
    assert not torch.equal(out, ours), "FlashAttention was not used"
    expected = layer.expected()
    assert (out.float() - expected).norm() / expected.norm() < DTYPES["bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", JOINED)
def test_queries_are_turned_and_keys_and_values_stored(kind: str, dtype: str) -> None:
    case = replace(JOINED[kind], dtype=dtype)
    found = turned_and_stored(case, "cuda")
    assert found.pop("others") == 0
    allowed = 0.03 if case.fp8_pages else DTYPES[dtype]  # rounded after other roundings
    assert found.pop("queries") < DTYPES[dtype]
    assert all(error < allowed for error in found.values()), found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(1, 64), (1, 4096), (300, 8000)])
def test_rows_are_normed(tokens: int, width: int, dtype: str) -> None:
    assert normed(tokens, width, dtype, "cuda") < DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(1, 64), (300, 14336)])
def test_a_gate_is_applied(tokens: int, width: int, dtype: str) -> None:
    assert gated(tokens, width, dtype, "cuda") < DTYPES[dtype]


@pytest.mark.parametrize("vocab", [1000, 151_936])
@pytest.mark.parametrize("step", [0.0, 0.25, 8.0])
def test_the_fewest_of_the_likeliest_tokens_stay(vocab: int, step: float) -> None:
    assert wrong_rows(vocab, 2.0, step, "cuda") == []


@pytest.mark.parametrize("vocab", [1000, 151_936])
def test_the_greatest_sum_is_drawn(vocab: int) -> None:
    assert wrong_draws(vocab, "cuda") == 0


def test_noise_is_the_same_to_the_bit() -> None:
    assert wrong_sums(100_000, "cuda") == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(2, 16), (300, 14336)])
def test_rows_become_float8(tokens: int, width: int, dtype: str) -> None:
    numbers, scales = made_float8(tokens, width, dtype, "cuda")
    assert numbers < 0.03
    assert scales < 1e-6

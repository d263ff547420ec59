"""Products of quantized weights on a GPU keep the laws that interpreted ones keep."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deployments.engine.forward.cuda_graphs import CudaGraphCapture
from deployments.engine.forward.products.making import stored_weights
from deployments.engine.loading.loader import load_model
from deployments.engine.loading.quantization import Quantization
from tests.checkpoints import save_checkpoint
from tests.engine.kernels.gpu.paged import DTYPES
from tests.engine.kernels.gpu.quantized import (
    LAYOUTS,
    Quantized,
    experts_answered,
    inputs_of,
    multiplied,
    read,
    rows_of,
    weight_of,
    with_all_else,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FP8_INPUTS = 0.04  # the error of inputs that are rounded to float8


def large(case: Quantized) -> Quantized:
    """The same layout in a matrix that is split, and whose last block is no whole one."""
    n_inputs = case.n_inputs * 8
    group = n_inputs if case.group == case.n_inputs else case.group
    n_stored = case.n_stored * 8
    return replace(case, n_outputs=1008, n_inputs=n_inputs, n_stored=n_stored, group=group)


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_are_read_as_they_were_stored(name: str) -> None:
    assert read(large(LAYOUTS[name]), "cuda") == []


@pytest.mark.parametrize("tokens", [7, 16, 32])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_token_has_the_same_product_alone_and_among_others(name: str, tokens: int) -> None:
    case = large(LAYOUTS[name])
    found, differing = multiplied(case, tokens, "cuda")
    assert found < DTYPES[case.dtype]
    assert differing == []


@pytest.mark.parametrize("tokens", [33, 700])
@pytest.mark.parametrize("name", LAYOUTS)
def test_many_tokens_are_multiplied_with_dequantized_weights(name: str, tokens: int) -> None:
    case = large(LAYOUTS[name])
    is_natural = name in ("fp8 by rows", "fp8 of float16")
    allowed = FP8_INPUTS if is_natural else DTYPES[case.dtype]
    assert multiplied(case, tokens, "cuda")[0] < max(allowed, 2e-3)  # torch may use TF32


@pytest.mark.parametrize("tokens", [1, 2, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_follows_a_product_is_added(tokens: int, dtype: str) -> None:
    found = with_all_else(dtype, tokens, "cuda")
    assert all(error < max(DTYPES[dtype], 2e-3) for error in found.values()), found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [5, 32, 300])
def test_experts_answer_all_tokens_at_once(tokens: int, dtype: str) -> None:
    found, differing = experts_answered(tokens, dtype, "cuda")
    assert found < max(DTYPES[dtype], 2e-3)
    assert differing == [] or tokens > 32


@pytest.mark.parametrize("tokens", [1, 32, 64])
@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "fp8 by rows", "fp8 by blocks", "GPTQ", "IQ4_XS"])
def test_products_are_captured(name: str, tokens: int) -> None:
    from deployments.engine.forward.products.slab_linear import SlabLinear
    from deployments.engine.forward.products.slab_matrix import SlabMatrix

    case = large(LAYOUTS[name])
    linear = SlabLinear(SlabMatrix(weight_of(case, rows_of(case)), torch.device("cuda")), None)
    x, out = inputs_of(case, tokens, "cuda"), torch.empty(tokens, 1008, device="cuda")

    def run() -> None:
        out.copy_(linear(x))

    with torch.inference_mode():
        replay = CudaGraphCapture()(run)
        for _ in range(3):
            x.normal_()
            replay()
            assert torch.equal(out, linear(x).float())


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_a_model_that_is_quantized_as_it_loads_has_products_for_the_device(
    quantization: Quantization, tmp_path: Path
) -> None:
    from deployments.engine.forward.products.slab_linear import SlabLinear

    save_checkpoint(tmp_path)
    loaded = load_model(
        str(tmp_path), dtype=torch.bfloat16, device="cuda", quantization=quantization
    )
    products = [module for module in loaded.model.modules() if isinstance(module, SlabLinear)]
    assert products
    assert all(product.matrix.low.is_cuda for product in products)
    assert all(weight.is_cuda for weight in stored_weights(loaded.model))

"""Linear layers and experts that are quantized at load: their error, their memory, and the models
that are refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.linear import KernelLinear
from deployments.engine.forward.quantized_linear import PackedQuantized
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loader import finish_weights, load_model
from deployments.engine.loading.quantization import Quantization, QuantizationError, quantize
from deployments.engine.quantized.rounding import RoundedMatrix, to_float8, to_int4, to_int8
from deployments.engine.quantized.stored_weight import StoredWeight
from kv.content import Content
from tests import effort
from tests.adapters import make_adapter
from tests.checkpoints import save_checkpoint
from tests.engine.drive import engine, random_ids, request, roomy
from tests.families import tiny
from tests.models import tiny_model

# The largest error of a product by each, relative; weights have their own share of it.
ERRORS: dict[Quantization, float] = {"int8": 0.012, "int4": 0.12, "fp8": 0.04}
ROWS_OF_KERNELS = 15  # at most


def inputs(rows: int, n_in: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, n_in, generator=torch.Generator().manual_seed(1)).to(dtype)


def n_bytes(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def quantized(model: PreTrainedModel, quantization: Quantization) -> PreTrainedModel:
    quantize(model, quantization)
    finish_weights(model, "cpu")
    return model


def layer(
    quantization: Quantization, dtype: torch.dtype, bias: bool
) -> tuple[nn.Linear, nn.Module]:
    """A layer, and what becomes of it as a part of a model."""
    torch.manual_seed(0)
    linear = nn.Linear(192, 64, bias=bias, dtype=dtype)
    before = linear.weight.detach(), linear.bias
    model = tiny_model().to(dtype)
    model.model.layers[0].mlp.down_proj = linear
    product: nn.Module = quantized(model, quantization).model.layers[0].mlp.down_proj
    plain = nn.Linear(192, 64, bias=bias, dtype=dtype)
    plain.weight, plain.bias = nn.Parameter(before[0]), before[1]
    return plain, product


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quantization", ERRORS)
@torch.inference_mode()
def test_a_quantized_layer_has_a_small_error(
    quantization: Quantization, dtype: torch.dtype, bias: bool
) -> None:
    plain, product = layer(quantization, dtype, bias)
    for rows in (1, 8, 40):
        x = inputs(rows, 192, dtype)
        expected = plain(x).float()
        error = (product(x[None])[0].float() - expected).norm() / expected.norm()
        assert 0 < error < ERRORS[quantization]


@pytest.mark.parametrize("quantization", ERRORS)
@torch.inference_mode()
def test_the_output_of_a_row_does_not_depend_on_other_rows(quantization: Quantization) -> None:
    """Holds up to the number of rows that one kernel takes on every processor."""
    _, product = layer(quantization, torch.bfloat16, bias=False)
    x = inputs(ROWS_OF_KERNELS, 192, torch.bfloat16)
    if not has_matmul_kernels():
        pytest.skip("oneDNN chooses its kernels by the number of rows")
    together = product(x)
    for n in range(1, ROWS_OF_KERNELS):
        assert torch.equal(product(x[:n]), together[:n])


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen3_moe"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_batched_is_alone_in_float32(architecture: str, quantization: Quantization) -> None:
    model = quantized(tiny_model(architecture), quantization)
    requests = [request(f"r{i}", random_ids(5 + 3 * i, seed=i)) for i in range(4)]
    with engine(model=model) as running:
        alone = [running.run(req)[0].token_ids for req in requests]
        together = [outcome.token_ids for outcome in running.run_at_once(*requests)]
    assert together == alone


@pytest.mark.parametrize(("quantization", "max_ratio"), [("int8", 0.3), ("int4", 0.2)])
@pytest.mark.parametrize("architecture", ["llama", "qwen3_moe"])
def test_linear_layers_and_experts_shrink_and_all_others_stay(
    architecture: str, quantization: Quantization, max_ratio: float
) -> None:
    model = tiny_model(architecture)
    embedding = model.get_input_embeddings().weight.clone()
    before = n_bytes(model.model.layers)
    quantized(model, quantization)
    assert n_bytes(model.model.layers) < max_ratio * before
    assert torch.equal(model.get_input_embeddings().weight, embedding)


@pytest.mark.parametrize(("quantization", "bits"), [("int8", 8), ("int4", 8), ("fp8", 8)])
def test_the_output_layer_never_has_few_bits(quantization: Quantization, bits: int) -> None:
    model = tiny_model()
    quantize(model, quantization)
    weight = model.get_output_embeddings().weight.data
    assert isinstance(weight, StoredWeight)
    assert {layout.codebook.bits for layout in weight.layouts} == {bits}


@pytest.mark.parametrize("round_rows", [to_int8, to_int4, to_float8])
def test_rows_are_rounded_alike_whenever_they_are_read(round_rows: Callable[..., object]) -> None:
    weight = torch.randn(9, 128, generator=torch.Generator().manual_seed(0))
    weight[3], weight[4] = 0, 1e-20
    matrix = RoundedMatrix("made", weight, round_rows)  # type: ignore[arg-type]
    whole = matrix.rows(torch.arange(9)).dequantize()
    again = torch.cat([matrix.rows(torch.tensor([number])).dequantize() for number in range(9)])
    assert torch.equal(whole, again)
    assert torch.all(whole[3] == 0)
    assert (whole - weight).norm() / weight.norm() < 0.1


def test_an_adapter_is_merged_before_its_layer_is_quantized(tmp_path: Path) -> None:
    from tests.adapters import lora_tensors, save_adapter

    path = str(save_checkpoint(tmp_path / "model"))
    tensors = lora_tensors(load_model(path, dtype=torch.float32).model)
    loaded = [
        load_model(path, dtype=torch.float32, adapters=adapters, quantization="int8")
        for adapters in ((), ((save_adapter(tmp_path / "adapter", tensors), 1.0),))
    ]
    x = inputs(1, loaded[0].model.config.hidden_size, torch.float32)
    base, merged = (each.model.model.layers[0].self_attn.qkv_proj(x) for each in loaded)
    assert not torch.equal(base, merged)


@pytest.mark.skipif(effort.device != "cpu", reason="weights of these kernels stay on a CPU")
@pytest.mark.skipif(not has_matmul_kernels(), reason="our kernels do not run here")
@pytest.mark.parametrize("quantization", ERRORS)
def test_dtype_may_be_left_out_where_our_kernels_run(
    tmp_path: Path, quantization: Quantization
) -> None:
    model = load_model(str(save_checkpoint(tmp_path / "model")), quantization=quantization).model
    assert model.dtype == torch.bfloat16
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | KernelLinear)]
    assert {type(linear) for linear in layers} == {PackedQuantized}
    with engine(model=model) as running:
        [first, again] = [running.run(request("r", random_ids(9)))[0].token_ids for _ in range(2)]
    assert first == again


def of_odd_sizes() -> PreTrainedModel:
    model = tiny_model().to(torch.bfloat16)
    for parent in [*model.modules()]:
        for name, child in [*parent.named_children()]:
            if isinstance(child, nn.Linear):
                setattr(parent, name, nn.Linear(40, 8))
    return model


def already_quantized() -> PreTrainedModel:
    model = tiny_model()
    quantize(model, "int8")
    return model


@pytest.mark.parametrize(
    ("make", "quantization", "reason"),
    [
        (already_quantized, "int4", r"its files are quantized already \(int8\): leave it out"),
        (of_odd_sizes, "int4", "no layer of LlamaForCausalLM has sizes for int4"),
    ],
)
def test_a_quantization_that_is_not_available_is_refused_with_a_reason(
    make: Callable[[], PreTrainedModel], quantization: Quantization, reason: str
) -> None:
    with pytest.raises(QuantizationError, match=f"quantization: .*{reason}"):
        quantize(make(), quantization)


@pytest.mark.skipif("minicpm3" not in tiny.MODEL_TYPES, reason="needs a newer transformers")
def test_quantized_layers_stand_beside_latents() -> None:
    model = quantized(tiny.tiny_model("minicpm3"), "int8")
    attention = model.model.layers[0].self_attn
    assert type(attention.o_proj) is not nn.Linear
    assert type(attention.kv_b_proj) is nn.Linear
    assert all(shape.has_values_in_keys for shape in find_decoding(model).layout)


@torch.inference_mode()
def test_experts_that_are_quantized_in_part_are_computed() -> None:
    models = tiny_model("phimoe"), tiny_model("phimoe")  # which have no fused form
    for model in models:
        plain = [layer.mlp.experts.gate_up_proj for layer in model.model.layers]
        quantize(model, "int8")
        for layer, weight in zip(model.model.layers, plain, strict=True):
            layer.mlp.experts.gate_up_proj = weight
        for module in [*model.modules()] if model is models[1] else ():
            for name, weight in [*module.named_parameters(recurse=False)]:
                if isinstance(weight.data, StoredWeight):
                    module.register_parameter(name, nn.Parameter(weight.data.dequantize()))
    finish_weights(models[0], "cpu")
    ids = torch.tensor([random_ids(9)])
    found, expected = (model(ids).logits for model in models)
    torch.testing.assert_close(found, expected)


def test_requests_of_a_quantized_model_may_have_adapters(tmp_path: Path) -> None:
    """The model is in float32: its layers are as those of a GPU."""
    model = tiny_model()
    adapter = make_adapter(tmp_path / "adapter", model, seed=1)
    quantized(model, "int8")
    plain = request("plain", random_ids(9), max_tokens=8)
    adapted = replace(plain, request_id="adapted", content=Content(adapters=(adapter,)))
    with engine(model=model, limits=roomy(max_loras=1)) as running:
        outcomes = running.run_together(plain, adapted)
    assert all(outcome.error is None for outcome in outcomes)
    assert outcomes[0].token_ids != outcomes[1].token_ids

"""Quantized linear layers: their error, their memory, and the models that are refused."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.fusing import fuse
from deployments.engine.forward.linear import KernelLinear
from deployments.engine.forward.quantized_linear import (
    MAX_INT8_KERNEL_ROWS,
    MIN_DEQUANTIZED_ROWS,
    PackedQuantized,
    to_float8,
)
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loader import load_model
from deployments.engine.loading.quantization import (
    Quantization,
    QuantizationError,
    quantize,
)
from deployments.engine.quantized.layout import INT8
from kv.content import Content
from tests import effort
from tests.adapters import make_adapter
from tests.checkpoints import save_checkpoint
from tests.engine.drive import engine, random_ids, request, roomy
from tests.engine.loading.torchao import skip_without_torchao
from tests.families import tiny
from tests.models import tiny_model

skip_without_torchao()


def layer(n_in: int, n_out: int, dtype: torch.dtype, bias: bool) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(n_in, n_out, bias=bias, dtype=dtype)


def quantized(linear: nn.Linear, quantization: Quantization) -> nn.Module:
    """Quantizes the layer as a part of a model."""
    model = tiny_model().to(linear.weight.dtype)
    model.model.layers[0].mlp.down_proj = linear
    quantize(model, quantization, "cpu")
    layer: nn.Module = model.model.layers[0].mlp.down_proj
    return layer


def inputs(rows: int, n_in: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, n_in, generator=torch.Generator().manual_seed(1)).to(dtype)


def n_bytes(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 8, 9, 40])
@pytest.mark.parametrize(
    ("quantization", "dtype", "max_error"),
    [
        ("int8", torch.float32, 0.012),
        ("int8", torch.bfloat16, 0.015),
        ("int4", torch.bfloat16, 0.12),
    ],
)
@torch.inference_mode()
def test_a_quantized_layer_has_a_small_error(
    quantization: Quantization, dtype: torch.dtype, max_error: float, rows: int, bias: bool
) -> None:
    linear = layer(192, 64, dtype, bias)
    x = inputs(rows, 192, dtype)
    expected = F.linear(x, linear.weight, linear.bias).float()
    output = quantized(linear, quantization)(x[None])[0].float()
    error = (output - expected).norm() / expected.norm()
    assert 0 < error < max_error


@pytest.mark.parametrize(
    ("quantization", "rows"), [("int8", MAX_INT8_KERNEL_ROWS), ("int4", MIN_DEQUANTIZED_ROWS - 1)]
)
@torch.inference_mode()
def test_the_output_of_a_row_does_not_depend_on_other_rows(
    quantization: Quantization, rows: int
) -> None:
    """Holds up to the number of rows that one kernel takes on every processor."""
    linear = quantized(layer(192, 64, torch.bfloat16, bias=False), quantization)
    x = inputs(rows, 192, torch.bfloat16)
    together = linear(x)
    for n in range(1, rows):
        assert torch.equal(linear(x[:n]), together[:n])


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3"])
def test_batched_is_alone_for_int8_weights_in_float32(architecture: str) -> None:
    model = tiny_model(architecture)
    quantize(model, "int8", "cpu")
    requests = [request(f"r{i}", random_ids(5 + 3 * i, seed=i)) for i in range(8)]
    with engine(model=model) as running:
        alone = [running.run(req)[0].token_ids for req in requests]
        together = [outcome.token_ids for outcome in running.run_at_once(*requests)]
    assert together == alone


@pytest.mark.parametrize(
    ("quantization", "dtype", "max_ratio"),
    [("int8", torch.float32, 0.30), ("int4", torch.bfloat16, 0.36)],
)
def test_linear_layers_shrink_and_all_others_stay(
    quantization: Quantization, dtype: torch.dtype, max_ratio: float
) -> None:
    model = tiny_model().to(dtype)
    embedding = model.get_input_embeddings().weight.clone()
    before = n_bytes(model.model.layers)
    quantize(model, quantization, "cpu")
    assert n_bytes(model.model.layers) < max_ratio * before
    assert torch.equal(model.get_input_embeddings().weight, embedding)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_the_output_layer_becomes_int8_where_our_kernels_run(
    quantization: Quantization,
) -> None:
    model = tiny_model().to(torch.bfloat16)
    output = model.get_output_embeddings().weight.clone()
    quantize(model, quantization, "cpu")
    quantized_output = model.get_output_embeddings()
    x = inputs(3, output.shape[1], torch.bfloat16)
    expected = F.linear(x.float(), output.float())
    error = (quantized_output(x).float() - expected).norm() / expected.norm()
    if has_matmul_kernels():
        assert isinstance(quantized_output, PackedQuantized)
        assert quantized_output.matrix.layout.codebook == INT8
        assert 0 < error < 0.015
    else:
        assert torch.equal(quantized_output.weight, output)


def test_an_adapter_is_merged_before_its_layer_is_quantized(tmp_path: Path) -> None:
    from tests.adapters import lora_tensors, save_adapter

    path = str(save_checkpoint(tmp_path / "model"))
    tensors = lora_tensors(load_model(path, dtype=torch.float32).model)
    loaded = [
        load_model(path, dtype=torch.float32, adapters=adapters, quantization="int8")
        for adapters in ((), ((save_adapter(tmp_path / "adapter", tensors), 1.0),))
    ]
    base, merged = (each.model.model.layers[0].self_attn.qkv_proj.weight for each in loaded)
    assert base.dtype == merged.dtype == torch.int8
    assert not torch.equal(base, merged)


@pytest.mark.skipif(effort.device != "cpu", reason="weights of these kernels stay on a CPU")
@pytest.mark.skipif(not has_matmul_kernels(), reason="our kernels do not run here")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_dtype_may_be_left_out_where_our_kernels_run(
    tmp_path: Path, quantization: Quantization
) -> None:
    model = load_model(str(save_checkpoint(tmp_path / "model")), quantization=quantization).model
    fuse(model)
    assert model.dtype == torch.bfloat16
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | KernelLinear)]
    assert {type(linear) for linear in layers} == {PackedQuantized}
    with engine(model=model) as running:
        [first, again] = [running.run(request("r", random_ids(9)))[0].token_ids for _ in range(2)]
    assert first == again


def with_experts() -> PreTrainedModel:
    return tiny_model("qwen3_moe")


def of_odd_sizes() -> PreTrainedModel:
    model = tiny_model().to(torch.bfloat16)
    for parent in [*model.modules()]:
        for name, child in [*parent.named_children()]:
            if isinstance(child, nn.Linear):
                setattr(parent, name, nn.Linear(40, 8))
    return model


@pytest.mark.parametrize(
    ("make", "quantization", "reason"),
    [
        (with_experts, "int8", "the experts of Qwen3MoeForCausalLM"),
        (of_odd_sizes, "int4", "no linear layer"),
        (tiny_model, "int4", "int4 needs dtype bfloat16"),
        (tiny_model, "fp8", "fp8 needs a GPU"),
    ],
)
def test_a_quantization_that_is_not_available_is_refused_with_a_reason(
    make: Callable[[], PreTrainedModel], quantization: Quantization, reason: str
) -> None:
    with pytest.raises(QuantizationError, match=f"quantization: .*{reason}"):
        quantize(make(), quantization, "cpu")


@pytest.mark.exhaustive  # imports torch and torchao in a process of its own
def test_torchao_is_imported_in_silence_and_only_to_quantize() -> None:
    """And where it is not installed the error names the extra."""
    script = """if True:
        import sys
        from importlib.abc import MetaPathFinder
        import deployments.model.model_source
        from deployments.engine.loading.quantization import QuantizationError, torchao

        assert sys.modules["torchao"] is None

        class Missing(MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name.startswith("torchao"):
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Missing())
        try:
            torchao()
        except QuantizationError as error:
            print(error)
        del sys.meta_path[0]
        print(torchao().__name__)
    """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    said = "quantization: int8 and int4 need torchao: pip install -e '.[quantization]'"
    assert (ended.stdout, ended.stderr) == (f"{said}\ntorchao.quantization\n", "")


def test_float8_rounds_within_its_precision() -> None:
    rows = inputs(5, 64, torch.bfloat16)
    rows[2] = 0
    float8, scale = to_float8(rows)
    assert float8.dtype == torch.float8_e4m3fn
    back = float8.float() * scale
    assert torch.all((back - rows.float()).abs() <= rows.float().abs() / 16 + scale)
    assert torch.all(back[2] == 0)


@pytest.mark.skipif("minicpm3" not in tiny.MODEL_TYPES, reason="needs a newer transformers")
def test_quantized_layers_stand_beside_latents() -> None:
    model = tiny.tiny_model("minicpm3")
    quantize(model, "int8", "cpu")
    attention = model.model.layers[0].self_attn
    assert type(attention.o_proj) is not nn.Linear
    assert type(attention.kv_b_proj) is nn.Linear
    assert all(shape.has_values_in_keys for shape in find_decoding(model).layout)


def test_requests_of_a_quantized_model_may_have_adapters(tmp_path: Path) -> None:
    """The model is in float32: its layers are as those of a GPU."""
    model = tiny_model()
    adapter = make_adapter(tmp_path / "adapter", model, seed=1)
    quantize(model, "int8", "cpu")
    plain = request("plain", random_ids(9), max_tokens=8)
    adapted = replace(plain, request_id="adapted", content=Content(adapters=(adapter,)))
    with engine(model=model, limits=roomy(max_loras=1)) as running:
        outcomes = running.run_together(plain, adapted)
    assert all(outcome.error is None for outcome in outcomes)
    assert outcomes[0].token_ids != outcomes[1].token_ids

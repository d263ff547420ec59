"""Files that are not read are refused by the names of their keys and tensors."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.loader import load_model
from tests.engine.loading.formats.checkpoints import llama, save_quantized
from tests.engine.loading.formats.writers import WRITERS, Writer, fp8, gptq, packed_integers
from tests.engine.loading.test_checks import change_config

MODULE = "model.layers.1.self_attn.q_proj"
Tensors = dict[str, Tensor]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"quant_method": "hqq"}, r"\(hqq\): name the original, or a copy .* Read are fp8, "),
        ({"bits": 4}, r"quantized \(of no name\)"),
        ({"quant_method": "awq", "version": "gemv"}, "version gemv, and read is gemm"),
    ],
)
def test_options_that_are_not_read_are_named_beside_those_that_are(
    options: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        check_supported(LlamaConfig(quantization_config=options))


def replaced(end: str, tensor: Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {MODULE + end: tensor}


def without(end: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensors[name] for name in tensors if name != MODULE + end}


@pytest.mark.parametrize(
    ("writer", "change", "reason"),
    [
        (gptq(), without(".qzeros"), rf"lack {MODULE}\.qzeros"),
        (gptq(), without(".qweight"), rf"{MODULE}\.qzeros"),
        (
            gptq(),
            replaced(".g_idx", torch.full((64,), 9)),
            r"g_idx is int64 \[64\]: there are 64 in",
        ),
        (
            gptq(),
            replaced(".scales", torch.ones(2, 8)),
            r"scales is float32 \[2, 8\]: there should",
        ),
        (gptq(), replaced(".qzeros", torch.ones(2, 7).int()), "codes of 2, 3, 4, 8 bits are read"),
        (gptq(), replaced(".bias", torch.ones(64)), r"does not compute with: .*q_proj\.bias"),
        (packed_integers(), without(".weight_shape"), r"lack .*q_proj\.weight_shape"),
        (fp8(), without(".weight_scale"), r"q_proj\.weight is float8_e4m3fn, and its files lack"),
        (fp8(), replaced(".weight", torch.ones(32, 64)), r"q_proj\.weight is float32 \[32, 64\]"),
        (fp8((32, 32)), replaced(".weight_scale_inv", torch.ones(3, 5)), r"\[3, 5\]: no scales of"),
        (fp8(), replaced(".weight", torch.ones(24, 64).to(torch.float8_e4m3fn)), r"not \[32, 64\]"),
        (fp8(), replaced(".pre_quant_scale", torch.ones(64)), r"pre_quant_scale"),
        (WRITERS["awq"], replaced(".qzeros", torch.ones(1, 4).int()), r"should be int32 \[2, 4\]"),
        (
            WRITERS["nvfp4-pack-quantized"],
            replaced(".weight_global_scale", torch.zeros(1)),
            "larger than 0",
        ),
        (
            WRITERS["nvfp4 of modelopt"],
            replaced(".weight_scale", torch.ones(32, 2).to(torch.float8_e4m3fn)),
            r"should be \[32, 4\] scales",
        ),
    ],
)
def test_tensors_that_are_not_as_their_format_says(
    tmp_path: Path, writer: Writer, change: Callable[[Tensors], Tensors], reason: str
) -> None:
    path, _ = save_quantized(tmp_path, llama(), writer)
    file = Path(path) / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    with pytest.raises(UnsupportedModelError, match=reason) as error:
        load_model(path, dtype=torch.float32)
    assert str(error.value).startswith(f"{file}: ")


def test_a_config_that_contradicts_the_weights(tmp_path: Path) -> None:
    path, _ = save_quantized(tmp_path, llama(), fp8((32, 32)))
    with pytest.raises(UnsupportedModelError, match=r"down_proj\.weight is .*not \[64, 96\]"):
        load_model(change_config(Path(path), intermediate_size=96))
    change_config(Path(path), intermediate_size=128)
    with pytest.raises(UnsupportedModelError, match=r"lack weights: model\.layers\.2\."):
        load_model(change_config(Path(path), num_hidden_layers=3))


def test_quantized_weights_in_another_kind_of_file(tmp_path: Path) -> None:
    path, _ = save_quantized(tmp_path, llama(), gptq())
    file = Path(path) / "model.safetensors"
    torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()
    with pytest.raises(UnsupportedModelError, match=r"bin has quantized weights, .*safetensors"):
        load_model(path)

"""The plan of weights holds for packed rows: what stays quantized is what would be packed of the
original."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from numpy.typing import NDArray
from transformers import GptOssConfig, LlamaConfig, MixtralConfig

from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from deployments.engine.loading.gguf.weight_source import WeightSource
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.loading.gguf import converted
from tests.models import SIZES, from_config

Q8_0, Q4_0 = GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0
# Each row of these has whole blocks of 32.
PACKED = {
    "attn_[qkv][.]weight|ffn_(gate|up)(_exps)?[.]weight|token_embd": Q8_0,
    "ffn_down.*weight": Q4_0,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def by_outputs(weight: NDArray[np.float32], source: WeightSource) -> NDArray[np.float32]:
    """A row for each output."""
    rows = weight.swapaxes(-1, -2) if source.is_transposed else weight
    return np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])


@pytest.mark.parametrize(
    ("architecture", "config", "modify", "add_keys", "n_packed"),
    [
        ("llama", LlamaConfig(**SIZES), converted.llama, converted.llama_keys, 3 * 6 + 1),
        ("llama", MixtralConfig(**SIZES, **EXPERTS), converted.llama, converted.llama_keys, 16),
        (
            "gpt-oss",
            GptOssConfig(**SIZES, **EXPERTS),
            converted.gpt_oss,
            converted.gpt_oss_keys,
            16,
        ),
    ],
    ids=["llama", "mixtral", "gpt-oss"],
)
def test_rows_stay_quantized(
    architecture: str,
    config: LlamaConfig,
    modify: converted.Modify,
    add_keys: converted.AddKeys,
    n_packed: int,
    tmp_path: Path,
) -> None:
    model = from_config(config)
    file = tmp_path / "model.gguf"
    converted.write(model, file, architecture, add_keys=add_keys, modify=modify, packed=PACKED)
    weights = model.state_dict()
    n_found = 0
    for name, source in read_plan(read_gguf(file)).sources.items():
        block_type = source.tensors[0].block_type
        weight = source.weight(torch.float32)
        if not isinstance(weight, StoredWeight):
            continue
        n_found += 1
        kind = GGMLQuantizationType(block_type.id)
        packed = gguf.quantize(by_outputs(weights[name].numpy(), source), kind)
        expected = gguf.dequantize(packed, kind)
        assert np.array_equal(by_outputs(weight.dequantize().numpy(), source), expected), name
        assert np.array_equal(by_outputs(source.float32(), source), expected), name
    assert n_found == n_packed


def test_tensors_of_two_types_become_one_weight(tmp_path: Path) -> None:
    model = from_config(MixtralConfig(**SIZES, **EXPERTS))
    converted.write(
        model,
        tmp_path / "model.gguf",
        "llama",
        add_keys=converted.llama_keys,
        modify=converted.llama,
        packed={"ffn_gate_exps": Q8_0, "ffn_up_exps": Q4_0},
    )
    source = read_plan(read_gguf(tmp_path / "model.gguf")).sources[
        "model.layers.0.mlp.experts.gate_up_proj"
    ]
    original = model.state_dict()["model.layers.0.mlp.experts.gate_up_proj"].numpy()
    halves = [
        gguf.dequantize(gguf.quantize(np.ascontiguousarray(part), type_), type_)
        for part, type_ in zip(np.split(original, 2, axis=1), (Q8_0, Q4_0), strict=True)
    ]
    weight = source.weight(torch.float32)
    assert isinstance(weight, StoredWeight)
    assert len(weight.layouts) == 2
    assert np.array_equal(weight.dequantize(), np.concatenate(halves, axis=1))

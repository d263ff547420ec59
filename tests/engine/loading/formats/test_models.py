"""Models keep quantized weights that products multiply, and read all others as numbers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Mxfp4Config, PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.fingerprint import fingerprint
from deployments.engine.loading.loader import load_model
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.checkpoints import save_checkpoint
from tests.engine.drive import engine, random_ids, request
from tests.engine.loading.formats.checkpoints import gpt_oss, llama, save_quantized
from tests.engine.loading.formats.writers import EXPERT_WRITERS, WRITERS, Written, fp8, gptq
from tests.models import CONFIGS

IDS = torch.tensor([random_ids(12), random_ids(12, seed=1)])


def read(path: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A model as it was read, without products of its quantized weights."""
    return load_model(path, dtype=dtype, is_whole=False).model


def logits(model: PreTrainedModel) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(IDS).logits
    return found


def stored(model: nn.Module) -> list[str]:
    """The names of weights that are still quantized."""
    return [
        name for name, weight in model.named_parameters() if isinstance(weight.data, StoredWeight)
    ]


def test_a_projection_of_latents_that_others_read_is_dequantized(tmp_path: Path) -> None:
    config = CONFIGS["deepseek_v3"]()
    quantized, plain = save_quantized(tmp_path, config, WRITERS["fp8 in blocks"])
    model = read(quantized)
    names = stored(model)
    assert not any("kv_b_proj" in name for name in names)
    assert any("q_b_proj" in name for name in names)
    torch.testing.assert_close(logits(model), logits(read(plain)), rtol=0, atol=1e-5)
    asked = request("r", random_ids(9), max_tokens=6)
    outcomes = []
    for path in (quantized, plain):
        with engine(model=load_model(path, dtype=torch.float32)) as running:
            outcomes += running.run(asked)
    assert outcomes[0].token_ids == outcomes[1].token_ids


def test_the_experts_of_gpt_oss_are_those_of_transformers(tmp_path: Path) -> None:
    path, _ = save_quantized(tmp_path, gpt_oss(), EXPERT_WRITERS["mxfp4 of gpt-oss"])
    plain = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, quantization_config=Mxfp4Config(dequantize=True)
    )
    ours, theirs = (model.model.layers[0].mlp.experts for model in (read(path), plain))
    for name in ("gate_up_proj", "down_proj"):
        weight = getattr(ours, name).data
        assert isinstance(weight, StoredWeight)
        assert torch.equal(weight.dequantize(), getattr(theirs, name))


def test_only_what_is_multiplied_in_products_stays_quantized(tmp_path: Path) -> None:
    """Another layer reads its weight itself: it is given its numbers."""
    quantized, _ = save_quantized(tmp_path, llama(), fp8())
    model = read(quantized, torch.bfloat16)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert all(name.endswith("_proj.weight") for name in stored(model))


def test_biases_of_0_that_the_model_does_not_have_are_of_no_effect(tmp_path: Path) -> None:
    writer = gptq()

    def with_bias(*arguments: Any) -> Written:
        made = writer.write(*arguments)
        made.tensors[".bias"] = torch.zeros(len(made.weight))
        return made

    quantized, plain = save_quantized(tmp_path, llama(), replace(writer, write=with_bias))
    found = [logits(read(path)) for path in (quantized, plain)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


def test_a_fingerprint_samples_codes_and_factors(tmp_path: Path) -> None:
    prints: list[str] = []
    for seed in (0, 0, 1):
        folder = tmp_path / str(len(prints))
        folder.mkdir()
        quantized, _ = save_quantized(folder, llama(), fp8((32, 32)), seed=seed)
        prints.append(fingerprint(read(quantized)))
    assert prints[0] == prints[1] != prints[2]


def test_modelopt_says_so_in_a_file_of_its_own(tmp_path: Path) -> None:
    path, _ = save_quantized(tmp_path, llama(), WRITERS["nvfp4 of modelopt"])
    config = Path(path) / "config.json"
    fields = json.loads(config.read_text())
    del fields["quantization_config"]
    config.write_text(json.dumps(fields))
    said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    file = config.with_name("hf_quant_config.json")
    file.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": said}))
    assert len(stored(read(path))) == 14
    file.write_text("[]")
    with pytest.raises(UnsupportedModelError, match="has no object quantization"):
        load_model(path, dtype=torch.float32)


def test_a_file_of_modelopt_that_says_nothing_of_weights_is_ignored(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path)
    said = {"quant_algo": None, "kv_cache_quant_algo": "FP8"}
    (path / "hf_quant_config.json").write_text(json.dumps({"quantization": said}))
    assert not stored(read(str(path)))

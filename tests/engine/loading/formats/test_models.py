"""A quantized model is loaded without being dequantized, and answers as its dequantized twin."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    Mxfp4Config,
    PretrainedConfig,
    PreTrainedModel,
)

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.fingerprint import fingerprint
from deployments.engine.loading.loader import load_model
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.checkpoints import save_checkpoint
from tests.engine.drive import engine, random_ids, request
from tests.engine.loading.formats.checkpoints import WIDE, llama, qwen3_moe, save, save_quantized
from tests.engine.loading.formats.writers import WRITERS, draw, exponents, fp8, gptq
from tests.models import CONFIGS, from_config

DENSE = ("fp8, one scale", "fp8 in blocks", "float-quantized", "int-quantized", "w4a16",
         "w4a16 with actorder", "nvfp4-pack-quantized", "nvfp4 of modelopt", "awq",
         "gptq, asymmetric", "gptq with desc_act", "auto-round as gptq_v2", "nf4",
         "bitsandbytes int8")  # fmt: skip
EXPERTS = ("fp8 in blocks", "w4a16, asymmetric", "mxfp4-pack-quantized", "awq", "gptq")
SERVED = ("fp8, one scale", "fp8 in blocks, e8m0", "int-quantized, asymmetric", "w4a16, asymmetric",
          "nvfp4-pack-quantized", "mxfp4-pack-quantized", "awq", "gptq", "gptq with desc_act",
          "gptq, 8 bits", "gptq, 3 bits", "gptq, 2 bits", "nf4")  # fmt: skip
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


@pytest.mark.parametrize("name", DENSE)
def test_a_dense_model_computes_with_its_quantized_weights(tmp_path: Path, name: str) -> None:
    quantized, plain = save_quantized(tmp_path, llama(), WRITERS[name])
    model = read(quantized)
    assert len(stored(model)) == 14
    torch.testing.assert_close(logits(model), logits(read(plain)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_stay_quantized_when_they_are_merged(tmp_path: Path, name: str) -> None:
    quantized, plain = save_quantized(tmp_path, qwen3_moe(), WRITERS[name])
    model = read(quantized)
    assert sum("experts" in name for name in stored(model)) == 2
    torch.testing.assert_close(logits(model), logits(read(plain)), rtol=0, atol=1e-5)


def test_experts_with_inputs_in_several_orders_are_dequantized_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quantized, plain = save_quantized(tmp_path, qwen3_moe(), gptq(desc_act=True, by_seed=True))
    model = read(quantized)
    assert not any("experts" in name for name in stored(model))
    assert "dequantized are 2 weights of experts" in caplog.text
    torch.testing.assert_close(logits(model), logits(read(plain)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "name"), [(llama, name) for name in SERVED] + [(qwen3_moe, name) for name in EXPERTS]
)
def test_its_tokens_are_the_same_alone_and_in_a_batch(
    tmp_path: Path, config: Callable[[], PretrainedConfig], name: str
) -> None:
    quantized, plain = save_quantized(tmp_path, config(), WRITERS[name])
    prompts = [random_ids(n, seed=n) for n in (3, 17, 9)]
    requests = [request(str(n), ids, max_tokens=8) for n, ids in enumerate(prompts)]
    found = []
    for path in (quantized, plain):
        with engine(model=load_model(path, dtype=torch.float32)) as running:
            alone = [running.run(each)[0].token_ids for each in requests]
            assert alone == [each.token_ids for each in running.run_at_once(*requests)]
            found.append(alone)
    assert found[0] == found[1]


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


def test_gpt_oss_stays_in_mxfp4(tmp_path: Path) -> None:
    config = GptOssConfig(
        **{**WIDE, "num_hidden_layers": 1},
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=16,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    model, random = from_config(config), torch.Generator().manual_seed(0)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if not name.endswith("_proj"):
            tensors[name] = tensor
            continue
        shape = len(tensor), tensor.shape[2], tensor.shape[1] // 32
        tensors[f"{name}_blocks"] = draw(random, 256, *shape, 16).to(torch.uint8)
        tensors[f"{name}_scales"] = exponents(random, *shape)
    fields = {**model.config.to_diff_dict(), "architectures": ["GptOssForCausalLM"]}
    save(tmp_path, tensors, {**fields, "quantization_config": {"quant_method": "mxfp4"}})
    loaded = read(str(tmp_path))
    assert len(stored(loaded)) == 2
    plain = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, quantization_config=Mxfp4Config(dequantize=True)
    )
    torch.testing.assert_close(logits(loaded), logits(plain.eval()), rtol=0, atol=1e-5)
    outcomes = []
    for served in (load_model(str(tmp_path), dtype=torch.float32), plain.eval()):
        with engine(model=served) as running:
            outcomes += running.run(request("r", random_ids(20), max_tokens=12))
    assert outcomes[0].token_ids == outcomes[1].token_ids


def test_only_what_is_multiplied_in_products_stays_quantized(tmp_path: Path) -> None:
    """Another layer reads its weight itself: it is given its numbers."""
    quantized, _ = save_quantized(tmp_path, llama(), fp8())
    model = read(quantized, torch.bfloat16)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert all(name.endswith("_proj.weight") for name in stored(model))


def test_biases_of_0_that_the_model_does_not_have_are_of_no_effect(tmp_path: Path) -> None:
    writer = gptq()

    def with_bias(*arguments: object) -> object:
        made = writer.write(*arguments)  # type: ignore[arg-type]
        made.tensors[".bias"] = torch.zeros(len(made.weight))
        return made

    quantized, plain = save_quantized(
        tmp_path, llama(), type(writer)(with_bias, writer.options)  # type: ignore[arg-type]
    )  # fmt: skip
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

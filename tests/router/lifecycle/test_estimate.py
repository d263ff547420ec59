"""The resources that a model will take, estimated from its files and settings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from deployments.engine.limits import EngineLimits
from deployments.model.settings import Autoscaling, ModelSettings
from deployments.router.lifecycle.capacity import GIB, Resources
from deployments.router.lifecycle.estimate import model_needs, weight_bytes
from tests.engine.loading.gguf.by_hand import F32, Q8_0, entry, gguf
from tests.engine.loading.gguf.round_trip import original, plan_of
from tests.engine.loading.gguf.test_model_plan import CASES
from tests.engine.loading.gguf.test_plan_deepseek import CASES as LATENT_CASES


def test_what_a_model_needs_is_its_files_and_pages_times_its_replicas(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"12345678")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"not counted")
    limits = EngineLimits(kv_gib=0.5)
    made = ModelSettings(name="m", path=str(tmp_path), num_cpus=2, num_replicas=3, limits=limits)
    assert model_needs(made) == Resources(cpus=6, cpu_bytes=3 * (8 + GIB // 2))
    on_gpus = replace(made, num_gpus=1, num_cpus=1, tensor_parallel=2, num_replicas=1)
    assert model_needs(on_gpus) == Resources(cpus=1, gpus=2, gpu_bytes=8 + GIB)
    scaled = replace(made, autoscaling=Autoscaling(min_replicas=0, max_replicas=9))
    assert model_needs(scaled).cpus == 2


@pytest.mark.parametrize(
    ("said", "n_bytes"),
    [
        ({}, 4 * 100 + 4 * 64),
        ({"dtype": "bfloat16"}, 2 * 100 + 2 * 64),
        ({"num_gpus": 1.0}, 2 * 100 + 2 * 64),
        ({"num_gpus": 1.0, "dtype": "float32"}, 4 * 100 + 4 * 64),
        ({"dtype": "bfloat16", "quantization": "int8"}, 2 * 100 + 64),
        ({"dtype": "bfloat16", "quantization": "int4"}, 2 * 100 + 36),
    ],
)
def test_weights_count_as_what_they_are_loaded_as(
    tmp_path: Path, said: dict[str, object], n_bytes: int
) -> None:
    tensors = {"embed_tokens": np.zeros((10, 10), np.float32), "proj": np.zeros((8, 8), np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    made = ModelSettings(name="m", path=str(tmp_path), **said)  # type: ignore[arg-type]
    assert weight_bytes(made) == n_bytes


def test_slots_of_adapters_have_room_for_each_layer_that_takes_some(tmp_path: Path) -> None:
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": np.zeros((6, 4), np.float16),
        "model.layers.0.self_attn.q_proj.bias": np.zeros(6, np.float16),
        "model.layers.0.mlp.experts.0.up_proj.weight": np.zeros((8, 4), np.float16),
        "model.embed_tokens.weight": np.zeros((9, 4), np.float16),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    made = ModelSettings(name="m", path=str(tmp_path), num_cpus=2, limits=EngineLimits(n_pages=1))
    limits = replace(made.limits, max_loras=3, max_lora_rank=32)
    more = model_needs(replace(made, limits=limits)).cpu_bytes - model_needs(made).cpu_bytes
    assert more == 3 * 32 * (6 + 4) * 2


def test_quantized_weights_count_as_their_files_have_them(tmp_path: Path) -> None:
    blocks, scales = np.zeros((2, 3, 16), np.uint8), np.zeros((2, 3), np.uint8)
    words, plain = np.zeros((4, 8), np.int32), np.zeros(10, np.float16)
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "up_blocks": blocks,
        "up_scales": scales,
        "q.qweight": words,
        "norm": plain,
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert weight_bytes(ModelSettings(name="m", path=str(tmp_path))) == 96 + 6 + 128 + 20


def test_files_that_no_weights_are_read_from_are_not_counted(tmp_path: Path) -> None:
    made = ModelSettings(name="m", path=str(tmp_path))
    for name in ("consolidated", "model-1", "model-2", "model-3"):
        (tmp_path / f"{name}.safetensors").write_bytes(b"12345")
    assert weight_bytes(made) == 15
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weight_bytes(made) == 10
    for odd in ("[]", "[" * 200_000):
        (tmp_path / "model.safetensors.index.json").write_text(odd)
        assert weight_bytes(made) == 0


def test_pages_are_as_large_as_the_config_says(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    shape = {"num_hidden_layers": 3, "num_attention_heads": 8, "hidden_size": 64}
    numbers = 10 * 16 * 2 * 3 * 8  # of a token's keys and values, in 8 heads of 8
    limits = EngineLimits(n_pages=10, page_size=16)
    made = ModelSettings(name="m", path=str(tmp_path), num_cpus=2, limits=limits)
    in_fp8 = replace(made, limits=replace(limits, kv_dtype="fp8"))

    def pages(config: object, settings: ModelSettings = made) -> float:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return model_needs(settings).cpu_bytes - 5

    assert pages(shape) == numbers * 8 * 2
    assert pages({**shape, "num_key_value_heads": 2, "head_dim": 16}) == numbers * 2 // 8 * 16 * 2
    assert pages({"text_config": shape}, replace(made, dtype="float32")) == numbers * 8 * 4
    assert pages({"transformer_layer_config": shape}) == numbers * 8 * 2
    assert pages(shape, in_fp8) == numbers * 8
    types = ["sliding_attention", "full_attention", "sliding_attention"]  # in groups of one layer
    windows = {**shape, "layer_types": types, "sliding_window": 4}
    assert pages(windows) == numbers * 8 * 2 // 3
    states = {**shape, "layer_types": ["linear_attention", *types[1:]]}
    assert pages(states) == numbers * 8 * 2 * 2 // 3
    latents = {**shape, "kv_lora_rank": 24, "qk_rope_head_dim": 8}  # a token's, in 3 layers
    assert pages(latents) == 10 * 16 * 3 * (24 + 8) * 2
    assert pages(latents, replace(made, tensor_parallel=2)) == 2 * pages(latents)
    shapeless: list[object] = [{}, [], {**shape, "num_attention_heads": 0}]
    assert [pages(config) for config in shapeless] == [0, 0, 0]


def test_what_is_not_on_this_disk_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    limits = EngineLimits(n_pages=10)
    made = ModelSettings(name="m", path="some/model", num_cpus=1, limits=limits)
    assert model_needs(made).cpu_bytes == 0
    kept = tmp_path / "models--some--model"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("abc")
    (kept / "snapshots" / "abc").mkdir(parents=True)
    (kept / "snapshots" / "abc" / "model.safetensors").write_bytes(b"123")
    assert model_needs(made).cpu_bytes == 3
    (kept / "refs" / "main").write_bytes(b"\xff")
    assert model_needs(made).cpu_bytes == 0


def test_quantized_weights_of_a_gguf_file_count_as_they_are(tmp_path: Path) -> None:
    entries = [entry("a", (64, 8), Q8_0), entry("b", (64,), F32, 544)]
    (tmp_path / "m.gguf").write_bytes(gguf([], entries))
    made = ModelSettings(name="m", path=str(tmp_path / "m.gguf"))
    assert weight_bytes(made) == 544 + 4 * 64
    assert weight_bytes(replace(made, dtype="bfloat16")) == 544 + 2 * 64
    assert weight_bytes(replace(made, draft_model=made.path)) == 2 * (544 + 4 * 64)
    (tmp_path / "m.gguf").write_bytes(b"GGUF, but broken")
    assert weight_bytes(made) == 16
    (tmp_path / "m.gguf").unlink()
    assert weight_bytes(made) == 0


def test_slots_of_adapters_beside_a_gguf_file_have_room_for_its_layers(tmp_path: Path) -> None:
    names = ("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "blk.0.attn_norm.weight", "output")
    entries = [entry(name, (64, 8), Q8_0) for name in names]
    (tmp_path / "m.gguf").write_bytes(gguf([], entries))
    limits = EngineLimits(n_pages=1, max_loras=3, max_lora_rank=32)
    made = ModelSettings(name="m", path=str(tmp_path / "m.gguf"), num_cpus=1, limits=limits)
    without = replace(made, limits=replace(limits, max_loras=0))
    assert model_needs(made).cpu_bytes - model_needs(without).cpu_bytes == 3 * 32 * 2 * 72 * 2


@pytest.mark.parametrize(
    "name", ["llama", "gemma2", "gemma3", "gpt-oss", "phi3", "qwen3next", "qwen35", "lfm2"]
)
def test_pages_of_a_gguf_model_are_those_of_its_config(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    plan = plan_of(case, original(case), tmp_path)
    (tmp_path / "config.json").write_text(plan.config.to_json_string())
    check_pages_are_equal(tmp_path)


def test_latents_of_a_gguf_model_are_those_of_its_config(tmp_path: Path) -> None:
    case = LATENT_CASES["v3"]
    plan = plan_of(case, original(case), tmp_path)
    (tmp_path / "config.json").write_text(plan.config.to_json_string())
    check_pages_are_equal(tmp_path)
    check_pages_are_equal(tmp_path, tensor_parallel=2)


def check_pages_are_equal(folder: Path, tensor_parallel: int = 1) -> None:
    limits = EngineLimits(n_pages=10)
    ranks = {"tensor_parallel": tensor_parallel, "num_cpus": 1, "limits": limits}
    made = ModelSettings(name="m", path=str(folder), **ranks)  # type: ignore[arg-type]
    packed = replace(made, path=str(folder / "model.gguf"))
    pages = [model_needs(each).cpu_bytes - weight_bytes(each) for each in (made, packed)]
    assert pages[0] == pages[1] > 0

"""DeepSeek's models, whose keys and values are made of latents, come back as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import ExpertGatingFuncType, GGMLQuantizationType, GGUFWriter
from torch import Tensor
from transformers import DeepseekV2Config, DeepseekV3Config

from deployments.engine.loading.formats.mapped_file import MappedFile
from deployments.engine.loading.gguf.architectures.table import ARCHITECTURES
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.facts import GGUFFacts
from deployments.engine.loading.gguf.header import Value
from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import GGUF, read_gguf
from deployments.engine.loading.gguf.tensors import GGUFTensor
from tests.engine.loading.gguf import converted
from tests.engine.loading.gguf.converted import Named, set_key, write
from tests.engine.loading.gguf.round_trip import NARROW, Case, check_round_trip, original

KV_B = "model.layers.1.self_attn.kv_b_proj.weight"
# Latents, keys and values are of different sizes, and so are numbers that rotate and others.
LATENTS = {
    **NARROW,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
LEAST = {  # keys that no file is without
    "context_length": 64,
    "embedding_length": 64,
    "feed_forward_length": 64,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "expert_used_count": 8,
    "attention.head_count": 4,
    "attention.key_length": 24,
    "attention.value_length": 16,
    "attention.kv_lora_rank": 32,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 8,
}


def yarn(scale: float) -> dict[str, object]:
    return {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": scale,
        "mscale_all_dim": scale,
        "original_max_position_embeddings": 64,
    }


def joined(name: str, weight: Tensor, config: Any) -> Named:
    """Files had keys and values of latents in one."""
    changed = name.replace("e_score_correction_bias", "e_score_correction.bias")
    yield from converted.experts(changed, weight, config)


def split(name: str, weight: Tensor, config: Any) -> Named:
    """Source: `DeepseekV2Model.modify_tensors`."""
    if name.endswith("kv_b_proj.weight"):
        by_head = weight.view(config.num_attention_heads, -1, weight.shape[-1])
        keys, values = torch.split(by_head, [config.qk_nope_head_dim, config.v_head_dim], dim=1)
        yield name.replace("kv_b_proj", "k_b_proj"), keys.transpose(1, 2)
        yield name.replace("kv_b_proj", "v_b_proj"), values
    else:
        yield from joined(name, weight, config)


def old_keys(writer: GGUFWriter, config: Any) -> None:
    """The keys of files whose keys and values are joined, which do not have groups of experts."""
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    set_key(writer, "deepseek2.attention.key_length", config.qk_head_dim)
    set_key(writer, "deepseek2.attention.value_length", config.v_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    set_key(writer, "deepseek2.expert_count", config.n_routed_experts)
    set_key(writer, "deepseek2.expert_used_count", config.num_experts_per_tok)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.norm_topk_prob:
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if (scale := config.rope_parameters.get("mscale_all_dim")) is not None:
        writer.add_rope_scaling_yarn_log_mul(0.1 * scale)


def keys(writer: GGUFWriter, config: Any) -> None:
    """Heads share one key, the latent."""
    old_keys(writer, config)
    set_key(writer, "deepseek2.attention.head_count_kv", 1)
    n_latent = config.kv_lora_rank + config.qk_rope_head_dim
    set_key(writer, "deepseek2.attention.key_length", n_latent)
    set_key(writer, "deepseek2.attention.value_length", config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    is_sigmoid = config.model_type == "deepseek_v3"
    kinds = ExpertGatingFuncType
    writer.add_expert_gating_func(kinds.SIGMOID if is_sigmoid else kinds.SOFTMAX)


def v3(**fields: object) -> DeepseekV3Config:
    return DeepseekV3Config(**{**LATENTS, "num_mtp_layers": 0, "q_lora_rank": 48, **fields})


CASES = {
    "v2": Case(
        "deepseek2",
        lambda: DeepseekV2Config(
            **LATENTS,
            q_lora_rank=48,
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            routed_scaling_factor=16.0,
            rope_parameters=yarn(0.707),
        ),
        split,
        keys,
    ),
    "v2 lite, an old file": Case(
        "deepseek2",
        lambda: DeepseekV2Config(
            **LATENTS, q_lora_rank=None, n_group=1, topk_group=1, rope_parameters=yarn(0.707)
        ),
        joined,
        old_keys,
    ),
    "v3": Case(
        "deepseek2",
        lambda: v3(n_group=4, topk_group=2, rope_parameters=yarn(1.0)),
        split,
        keys,
    ),
    "v3, an old file": Case("deepseek2", lambda: v3(n_group=1, topk_group=1), joined, old_keys),
    "moonlight": Case(
        "deepseek2",
        lambda: v3(q_lora_rank=None, n_group=1, topk_group=1, norm_topk_prob=False),
        split,
        keys,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_converted_model_is_read_as_it_was(case: Case, tmp_path: Path) -> None:
    plan = check_round_trip(case, tmp_path)
    # Rows that stay quantized can't follow keys that are transposed.
    assert (plan.sources[KV_B].merge is None) == (case.modify is joined)


def test_packed_parts_of_latents_are_merged_as_float32(tmp_path: Path) -> None:
    case, file = CASES["v3"], tmp_path / "model.gguf"
    model = original(case)
    packed = {"attn_v_b": GGMLQuantizationType.Q8_0}
    write(model, file, "deepseek2", add_keys=case.add_keys, modify=case.modify, packed=packed)
    source = read_plan(read_gguf(file)).sources[KV_B]
    assert [tensor.block_type.n_weights for tensor in source.tensors] == [1, 32]
    by_head = source.float32().reshape(4, 12 + 10, 64)
    weight = model.state_dict()[KV_B].numpy().reshape(by_head.shape)
    assert np.array_equal(by_head[:, :12], weight[:, :12])
    difference = np.abs(by_head[:, 12:] - weight[:, 12:]).max()
    assert 0 < difference < 0.02 * np.abs(weight).max()


def test_gate_and_up_of_experts_may_be_one_tensor(tmp_path: Path) -> None:
    def fused(name: str, weight: Tensor, config: Any) -> Named:
        if name.endswith("experts.gate_up_proj"):
            yield f"blk.{name.split('.')[2]}.ffn_gate_up_exps.weight", weight
        else:
            yield from split(name, weight, config)

    check_round_trip(Case("deepseek2", CASES["v3"].config, fused, keys), tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("expert_gating_func", 3, "3 is not supported"),
        ("expert_gating_func", 1, "expert_weights_norm"),
        ("rope.dimension_count", 20, "it is not below 20, the size of a key"),
        ("attention.key_length_mla", 21, "does not fit model.layers.0.self_attn.q_b_proj.weight"),
        ("attention.temperature_scale", 0.1, "not supported: deepseek2.attention.temperature"),
    ],
)
def test_a_key_that_can_not_be_is_named(
    key: str, value: object, message: str, tmp_path: Path
) -> None:
    case, file = CASES["v3"], tmp_path / "model.gguf"
    write(
        original(case),
        file,
        "deepseek2",
        add_keys=case.add_keys,
        modify=case.modify,
        more_keys={f"deepseek2.{key}": value},
    )
    with pytest.raises(GGUFError, match=message):
        read_plan(read_gguf(file))


@pytest.mark.parametrize(
    ("n_layers", "n_experts", "groups"), [(61, 256, (8, 4)), (61, 384, (1, 1)), (60, 160, (8, 3))]
)
def test_groups_that_an_old_file_does_not_say_are_known_by_size(
    n_layers: int, n_experts: int, groups: tuple[int, int]
) -> None:
    """DeepSeek V3 and V2 have groups. Kimi K2 has none."""
    metadata: dict[str, Value] = {
        "general.architecture": "deepseek2",
        **{f"deepseek2.{name}": size for name, size in LEAST.items()},
        "deepseek2.block_count": n_layers,
        "deepseek2.expert_count": n_experts,
    }
    file = MappedFile(Path("model.gguf"), 0)
    tensors = {
        name: GGUFTensor(name, (128, 64), 0, 0, file)
        for name in ["token_embd.weight", *(f"blk.{n}.attn_k_b.weight" for n in range(n_layers))]
    }
    gguf = GGUF(metadata, tensors, (file.path,))
    config = ARCHITECTURES["deepseek2"].config(GGUFFacts(gguf))
    assert (config.n_group, config.topk_group) == groups

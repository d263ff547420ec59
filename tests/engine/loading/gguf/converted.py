"""Writes models of transformers to GGUF files, as llama.cpp's conversion does.

Names of tensors are those of the package `gguf`, and what is done to weights is written down here
once more: nothing is shared with what reads the files.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFWriter,
    RopeScalingType,
    get_tensor_name_map,
)
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

Named = Iterator[tuple[str, Tensor]]
Modify = Callable[[str, Tensor, Any], Named]
AddKeys = Callable[[GGUFWriter, Any], None]
TOKEN_IDS = ("bos", "eos", "pad")


def write(
    model: PreTrainedModel,
    path: Path,
    architecture: str,
    *,
    add_keys: AddKeys,
    modify: Modify,
    leave_out: str = "",
    more_keys: Mapping[str, object] | None = None,
    more_tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    packed: Mapping[str, GGMLQuantizationType] | None = None,
) -> Path:
    """Writes a file of float32.

    add_keys: what the conversion of this architecture writes beside what all have.
    modify: makes of a weight the weights that are written, still with names of transformers.
    leave_out: a pattern of the names of tensors that are not written.
    packed: patterns of the names of tensors that are quantized.
    """
    config = model.config
    arch = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    writer = GGUFWriter(path, architecture)
    _add_common_keys(writer, config)
    add_keys(writer, config)
    for key, value in (more_keys or {}).items():
        set_key(writer, key, value)
    tensors = {**dict(_tensors(model, arch, modify)), **(more_tensors or {})}
    for name, data in tensors.items():
        types = [type_ for pattern, type_ in (packed or {}).items() if re.search(pattern, name)]
        if types:
            writer.add_tensor(name, gguf.quantize(data, types[0]), raw_dtype=types[0])
        elif name in (more_tensors or {}) or not (leave_out and re.search(leave_out, name)):
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def set_key(writer: GGUFWriter, key: str, value: object) -> None:
    """Keys that are there already are written over."""
    for part in writer.kv_data:
        part.pop(key, None)
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif value is not None:
        writer.add_string(key, str(value))


def _tensors(
    model: PreTrainedModel, arch: MODEL_ARCH, modify: Modify
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    config = model.config
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for changed_name, changed in modify(name, weight, config):
            found = changed_name
            if not found.startswith("blk."):
                found = names.get_name(changed_name, try_suffixes=(".weight", ".bias")) or ""
            assert found, changed_name
            yield found, changed.float().contiguous().numpy()
    rope = getattr(config, "rope_parameters", {})
    if rope.get("full_attention", rope).get("rope_type") == "proportional":
        yield "rope_freqs.weight", _proportional_factors(config)
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", _llama3_factors(config)
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            yield f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32)


def _add_common_keys(writer: GGUFWriter, config: PretrainedConfig) -> None:
    """The keys of `TextModel.set_gguf_parameters`."""
    fields = config.to_dict()
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if "intermediate_size" in fields:
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if "num_key_value_heads" in fields:
        writer.add_head_count_kv(fields["num_key_value_heads"])
    if "layer_norm_eps" in fields:
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(fields.get("rms_norm_eps") or fields["norm_eps"])
    if (head_dim := fields.get("head_dim")) is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if n_experts := fields.get("num_local_experts") or fields.get("num_experts"):
        writer.add_expert_count(n_experts)
        n_used = fields.get("num_experts_per_tok") or fields["top_k_experts"]
        writer.add_expert_used_count(n_used)
    for name in TOKEN_IDS:
        if (token := getattr(config, f"{name}_token_id")) is not None:
            getattr(writer, f"add_{name}_token_id")(token)
    if not (rope := getattr(config, "rope_parameters", None)):
        return
    full = rope.get("full_attention", rope)
    writer.add_rope_freq_base(full["rope_theta"])
    if "sliding_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if full["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
    if full["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(full["factor"])
        writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(full["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(full["beta_slow"])


def _llama3_factors(config: PretrainedConfig) -> np.ndarray[Any, Any]:
    """Each frequency is divided by one of them. Source: `LlamaModel.generate_extra_tensors`."""
    rope = config.rope_parameters
    factor, low, high = (rope[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    original = rope["original_max_position_embeddings"]
    found = list[float]()
    for at in range(0, config.head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (at / config.head_dim)
        if wavelength < original / high:
            found.append(1)
        elif wavelength > original / low:
            found.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def _proportional_factors(config: PretrainedConfig) -> np.ndarray[Any, Any]:
    """Pairs that stay have such large ones that nothing rotates. Source:
    `Gemma4Model.generate_extra_tensors`."""
    head_dim = config.per_layer_config["full_attention"].head_dim
    n_rotated = int(
        head_dim * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2
    )
    return np.array([1.0] * n_rotated + [1e30] * (head_dim // 2 - n_rotated), np.float32)


def permuted(weight: Tensor, n_heads: int) -> Tensor:
    """Source: `LlamaModel.permute`."""
    halves = weight.reshape(n_heads, 2, weight.shape[0] // n_heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def llama(name: str, weight: Tensor, config: Any) -> Named:
    if re.search(r"\.q_proj\.", name):
        yield name, permuted(weight, config.num_attention_heads)
    elif re.search(r"\.k_proj\.", name):
        yield name, permuted(weight, config.num_key_value_heads)
    else:
        yield from experts(name, weight, config)


def experts(name: str, weight: Tensor, _config: Any) -> Named:
    """transformers has gate and up of an expert in one, and files of the hub do not."""
    if name.endswith("experts.gate_up_proj"):
        gate, up = weight.chunk(2, dim=1)
        yield name.replace("gate_up_proj", "gate_proj.weight"), gate
        yield name.replace("gate_up_proj", "up_proj.weight"), up
    elif name.endswith("experts.down_proj"):
        yield f"{name}.weight", weight
    else:
        yield name, weight


def gemma(name: str, weight: Tensor, _config: Any) -> Named:
    yield name, weight + 1 if name.endswith("norm.weight") else weight


def gpt_oss(name: str, weight: Tensor, _config: Any) -> Named:
    """Published files have a row for each output, as those of other models."""
    if name.endswith(".gate_up_proj"):
        for at, part in enumerate(("gate", "up")):
            rows = weight.transpose(1, 2)[:, at::2]
            yield name.replace("gate_up_proj", f"{part}_proj.weight"), rows
    elif name.endswith(".gate_up_proj_bias"):
        for at, part in enumerate(("gate", "up")):
            yield name.replace("gate_up_proj_bias", f"{part}_proj.bias"), weight[:, at::2]
    elif name.endswith(".down_proj"):
        yield f"{name}.weight", weight.transpose(1, 2)
    elif name.endswith(".down_proj_bias"):
        yield name.replace("_bias", ".bias"), weight
    elif name.endswith("sinks"):
        yield f"{name}.weight", weight
    else:
        yield name, weight


def lfm2(name: str, weight: Tensor, _config: Any) -> Named:
    yield name, weight.squeeze(1) if name.endswith("conv.conv.weight") else weight


def qwen3_next(name: str, weight: Tensor, config: Any) -> Named:
    if name.endswith("A_log"):
        yield name, -torch.exp(weight)
    elif name.endswith("dt_bias"):
        yield name.replace("dt_bias", "dt_proj.bias"), weight
    elif "conv1d" in name or name.endswith("shared_expert_gate.weight"):
        yield name, weight.squeeze()
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        yield name, weight + 1
    elif "in_proj_qkvz" in name:
        per_head = config.linear_num_value_heads // config.linear_num_key_heads
        key, value = config.linear_key_head_dim, per_head * config.linear_value_head_dim
        by_head = weight.view(config.linear_num_key_heads, -1, weight.shape[1])
        parts = torch.split(by_head, [key, key, value, value], dim=1)
        q, k, v, z = (part.flatten(0, 1) for part in parts)
        layer = name.partition(".linear_attn")[0]
        yield f"{layer}.linear_attn.in_proj_qkv.weight", torch.cat([q, k, v])
        yield f"{layer}.linear_attn.in_proj_z.weight", z
    else:
        yield from experts(name, weight, config)


def qwen35(name: str, weight: Tensor, config: Any) -> Named:
    """Source: `_LinearAttentionVReorderBase`."""
    size = config.linear_value_head_dim
    n_before = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    if re.search(r"in_proj_qkv|conv1d", name):
        weight = torch.cat([weight[:n_before], tiled(weight[n_before:], size, config)])
    elif "in_proj_z" in name:
        weight = tiled(weight, size, config)
    elif re.search(r"in_proj_[ab]|A_log|dt_bias", name):
        weight = tiled(weight, 1, config)
    elif name.endswith("linear_attn.out_proj.weight"):
        weight = tiled(weight.T, size, config).T
    yield from qwen3_next(name, weight, config)


def tiled(weight: Tensor, size: int, config: Any) -> Tensor:
    """Heads of values that were grouped by heads of keys take turns afterwards."""
    n_keys = config.linear_num_key_heads
    n_per_key = config.linear_num_value_heads // n_keys
    by_head = weight.reshape(n_keys, n_per_key, size, *weight.shape[1:])
    return by_head.transpose(0, 1).reshape(weight.shape)


def lfm2_keys(writer: GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_shortconv_l_cache(config.conv_L_cache)
    n_heads = [config.num_key_value_heads * (kind != "conv") for kind in config.layer_types]
    set_key(writer, "lfm2.attention.head_count_kv", n_heads)
    set_key(writer, "lfm2.feed_forward_length", 256)  # of 2/3 of 64, rounded up


def delta_net_keys(writer: GGUFWriter, config: Any) -> None:
    if n_shared := getattr(config, "shared_expert_intermediate_size", 0):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(n_shared)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(4)
    writer.add_rope_dimension_count(config.head_dim // 4)
    if "mrope_section" in config.rope_parameters:
        writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])


def no_keys(_writer: GGUFWriter, _config: Any) -> None:
    pass


def granite_keys(writer: GGUFWriter, config: Any) -> None:
    llama_keys(writer, config)
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def qwen3_moe_keys(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def gpt_oss_keys(writer: GGUFWriter, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_feed_forward_length(config.intermediate_size)


def phi3_keys(writer: GGUFWriter, config: Any) -> None:
    rope, original = config.rope_parameters, config.original_max_position_embeddings
    head_dim = config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "longrope":
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))


def llama_keys(writer: GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    head_dim = getattr(config, "head_dim", None)
    writer.add_rope_dimension_count(head_dim or config.hidden_size // config.num_attention_heads)


def gemma_keys(writer: GGUFWriter, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    if (cap := config.attn_logit_softcapping) is not None:
        writer.add_attn_logit_softcapping(cap)
    if (cap := config.final_logit_softcapping) is not None:
        writer.add_final_logit_softcapping(cap)


def vary(model: PreTrainedModel) -> PreTrainedModel:
    """Has no vector begin as zeros or ones, and has no number that is 0. A 1 can be added to each,
    and taken away again, without rounding."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.state_dict().values():
            if weight.dim() == 1 or not weight.any():
                weight.copy_((torch.randint(-32, 32, weight.shape) + 0.5) / 64)
    return model

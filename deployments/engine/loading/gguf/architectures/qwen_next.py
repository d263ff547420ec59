"""Qwen 3 Next and 3.5, three of whose four layers are gated delta nets.

Source: Qwen3NextModel and _LinearAttentionVReorderBase of llama.cpp's conversion, and its
qwen3next.cpp.
"""

from typing import Any

import numpy as np
from transformers import (
    PretrainedConfig,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    ATTENTION,
    EXPERTS,
    MLP,
    OUTER,
    in_layers,
    rotated_part,
    sizes,
)
from deployments.engine.loading.gguf.architectures.rope import rope_parameters
from deployments.engine.loading.gguf.architectures.undoing import log_of_negative, without_one
from deployments.engine.loading.gguf.facts import GGUFFacts
from deployments.engine.loading.gguf.weight_source import RowNumbers, Shape

FULL_EVERY = 4  # layers, where a file does not say it


def _by_key_head(config: PretrainedConfig, _shapes: tuple[Shape, ...]) -> RowNumbers:
    """The parameter has Q, K, V and Z of each head of keys together. Files have all Q, then all K,
    then all V, and Z in another tensor."""
    n_heads = config.linear_num_key_heads
    n_keys = n_heads * config.linear_key_head_dim
    n_values = config.linear_num_value_heads * config.linear_value_head_dim
    ends = np.cumsum([n_keys, n_keys, n_values, n_values])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    return np.concatenate([part.reshape(n_heads, -1) for part in parts], axis=1).ravel()


def _value_heads(config: PretrainedConfig, _shapes: tuple[Shape, ...]) -> RowNumbers:
    """Files of Qwen 3.5 have the first head of values of all heads of keys, then the second one of
    all. The parameter has those of a head of keys together."""
    n_keys = config.linear_num_key_heads
    return np.arange(config.linear_num_value_heads).reshape(-1, n_keys).T.ravel()


def _values(config: PretrainedConfig, shapes: tuple[Shape, ...]) -> RowNumbers:
    """The same order of all numbers of these heads."""
    heads, size = _value_heads(config, shapes), int(config.linear_value_head_dim)
    return np.add.outer(heads * size, np.arange(size)).ravel()


def _behind_keys(config: PretrainedConfig, shapes: tuple[Shape, ...]) -> RowNumbers:
    """The same order behind Q and K, which stay."""
    n_before = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    return np.concatenate([np.arange(n_before), n_before + _values(config, shapes)])


def _norm(tensor: str) -> TensorRecipe:
    return TensorRecipe((f"{tensor}.weight",), undo=without_one)


ATTENDING = in_layers(
    {
        "input_layernorm.weight": _norm("blk.{}.attn_norm"),
        "post_attention_layernorm.weight": _norm("blk.{}.post_attention_norm"),
        "self_attn.q_norm.weight": _norm("blk.{}.attn_q_norm"),
        "self_attn.k_norm.weight": _norm("blk.{}.attn_k_norm"),
    }
)
DELTA_NET = in_layers(
    {
        "linear_attn.in_proj_qkvz.weight": TensorRecipe(
            ("blk.{}.attn_qkv.weight", "blk.{}.attn_gate.weight"), _by_key_head
        ),
        "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
        "linear_attn.conv1d.weight": "ssm_conv1d.weight",
        "linear_attn.dt_bias": "ssm_dt.bias",
        "linear_attn.A_log": TensorRecipe(("blk.{}.ssm_a",), undo=log_of_negative),
        "linear_attn.norm.weight": "ssm_norm.weight",
        "linear_attn.out_proj.weight": "ssm_out.weight",
    }
)
TILED_DELTA_NET = in_layers(
    {
        "linear_attn.in_proj_qkv.weight": TensorRecipe(("blk.{}.attn_qkv.weight",), _behind_keys),
        "linear_attn.in_proj_z.weight": TensorRecipe(("blk.{}.attn_gate.weight",), _values),
        "linear_attn.in_proj_a.weight": TensorRecipe(("blk.{}.ssm_alpha.weight",), _value_heads),
        "linear_attn.in_proj_b.weight": TensorRecipe(("blk.{}.ssm_beta.weight",), _value_heads),
        "linear_attn.conv1d.weight": TensorRecipe(("blk.{}.ssm_conv1d.weight",), _behind_keys),
        "linear_attn.dt_bias": TensorRecipe(("blk.{}.ssm_dt.bias",), _value_heads),
        "linear_attn.A_log": TensorRecipe(("blk.{}.ssm_a",), _value_heads, log_of_negative),
        "linear_attn.norm.weight": "ssm_norm.weight",
        "linear_attn.out_proj.weight": TensorRecipe(("blk.{}.ssm_out.weight",), inputs=_values),
    }
)
SHARED_EXPERT = in_layers(
    {
        "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
        "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
        "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
        "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    }
)


def _qwen3_next(facts: GGUFFacts) -> PretrainedConfig:
    experts = _experts(facts)
    intermediate_size = facts.optional_whole("feed_forward_length")
    return Qwen3NextConfig(
        **_fields(facts),
        **experts,
        intermediate_size=intermediate_size or experts["moe_intermediate_size"],
        norm_topk_prob=True,  # llama.cpp computes so, whatever the original says
    )


def _qwen35(facts: GGUFFacts) -> PretrainedConfig:
    fields = _grid_fields(facts)
    return Qwen3_5TextConfig(**fields, intermediate_size=facts.size("feed_forward_length"))


def _qwen35_moe(facts: GGUFFacts) -> PretrainedConfig:
    facts.optional_whole("feed_forward_length")  # no layer is without experts
    return Qwen3_5MoeTextConfig(**_grid_fields(facts), **_experts(facts))


def _fields(facts: GGUFFacts) -> dict[str, Any]:
    fields = sizes(facts)
    n_rotated, part = rotated_part(facts, fields["head_dim"])
    n_value_heads = facts.size("ssm.time_step_rank")
    every = facts.optional_whole("full_attention_interval") or FULL_EVERY
    return {
        **fields,
        "rope_parameters": {**rope_parameters(facts, n_rotated), "partial_rotary_factor": part},
        "layer_types": [
            "linear_attention" if number % every else "full_attention"
            for number in range(1, fields["num_hidden_layers"] + 1)
        ],
        "linear_conv_kernel_dim": facts.size("ssm.conv_kernel"),
        "linear_key_head_dim": facts.size("ssm.state_size"),
        "linear_num_key_heads": facts.size("ssm.group_count"),
        "linear_num_value_heads": n_value_heads,
        "linear_value_head_dim": facts.size("ssm.inner_size") // n_value_heads,
    }


def _grid_fields(facts: GGUFFacts) -> dict[str, Any]:
    """The fields of a model that rotates by line and column where it sees."""
    fields = _fields(facts)
    sections = facts.integers("rope.dimension_sections")
    grid = {"mrope_section": sections[:3], "mrope_interleaved": True}
    return {**fields, "rope_parameters": {**fields["rope_parameters"], **grid}}


def _experts(facts: GGUFFacts) -> dict[str, Any]:
    return {
        "num_experts": facts.size("expert_count"),
        "num_experts_per_tok": facts.size("expert_used_count"),
        "moe_intermediate_size": facts.size("expert_feed_forward_length"),
        "shared_expert_intermediate_size": facts.size("expert_shared_feed_forward_length"),
    }


COMMON = {**OUTER, **ATTENTION, **ATTENDING, "model.norm.weight": _norm("output_norm")}
QWEN3_NEXT = GGUFArchitecture(_qwen3_next, {**COMMON, **DELTA_NET, **EXPERTS, **SHARED_EXPERT})
QWEN35 = GGUFArchitecture(_qwen35, {**COMMON, **TILED_DELTA_NET, **MLP})
QWEN35_MOE = GGUFArchitecture(
    _qwen35_moe, {**COMMON, **TILED_DELTA_NET, **EXPERTS, **SHARED_EXPERT}
)

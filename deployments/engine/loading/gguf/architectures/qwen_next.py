"""Qwen 3 Next, three of whose four layers are gated delta nets.

Source: Qwen3NextModel of llama.cpp's conversion, and its qwen3next.cpp.
"""

import numpy as np
from transformers import PretrainedConfig, Qwen3NextConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    ATTENTION,
    EXPERTS,
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


def _norm(tensor: str) -> TensorRecipe:
    return TensorRecipe((f"{tensor}.weight",), undo=without_one)


LAYERS = in_layers(
    {
        "input_layernorm.weight": _norm("blk.{}.attn_norm"),
        "post_attention_layernorm.weight": _norm("blk.{}.post_attention_norm"),
        "self_attn.q_norm.weight": _norm("blk.{}.attn_q_norm"),
        "self_attn.k_norm.weight": _norm("blk.{}.attn_k_norm"),
        "linear_attn.in_proj_qkvz.weight": TensorRecipe(
            ("blk.{}.attn_qkv.weight", "blk.{}.attn_gate.weight"), _by_key_head
        ),
        "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
        "linear_attn.conv1d.weight": "ssm_conv1d.weight",
        "linear_attn.dt_bias": "ssm_dt.bias",
        "linear_attn.A_log": TensorRecipe(("blk.{}.ssm_a",), undo=log_of_negative),
        "linear_attn.norm.weight": "ssm_norm.weight",
        "linear_attn.out_proj.weight": "ssm_out.weight",
        "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
        "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
        "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
        "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    }
)


def _qwen3_next(facts: GGUFFacts) -> PretrainedConfig:
    fields = sizes(facts)
    n_rotated, part = rotated_part(facts, fields["head_dim"])
    n_value_heads = facts.size("ssm.time_step_rank")
    inner_size = facts.size("ssm.inner_size")
    every = facts.optional_whole("full_attention_interval") or FULL_EVERY
    moe_size = facts.size("expert_feed_forward_length")
    return Qwen3NextConfig(
        **fields,
        intermediate_size=facts.optional_whole("feed_forward_length") or moe_size,
        rope_parameters={**rope_parameters(facts, n_rotated), "partial_rotary_factor": part},
        layer_types=[
            "linear_attention" if number % every else "full_attention"
            for number in range(1, fields["num_hidden_layers"] + 1)
        ],
        linear_conv_kernel_dim=facts.size("ssm.conv_kernel"),
        linear_key_head_dim=facts.size("ssm.state_size"),
        linear_num_key_heads=facts.size("ssm.group_count"),
        linear_num_value_heads=n_value_heads,
        linear_value_head_dim=inner_size // n_value_heads,
        num_experts=facts.size("expert_count"),
        num_experts_per_tok=facts.size("expert_used_count"),
        moe_intermediate_size=moe_size,
        shared_expert_intermediate_size=facts.size("expert_shared_feed_forward_length"),
        norm_topk_prob=True,  # llama.cpp computes so, whatever the original says
    )


QWEN3_NEXT = GGUFArchitecture(
    _qwen3_next,
    {
        **OUTER,
        **ATTENTION,
        **EXPERTS,
        **LAYERS,
        "model.norm.weight": _norm("output_norm"),
    },
)

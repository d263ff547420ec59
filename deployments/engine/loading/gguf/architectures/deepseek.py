"""DeepSeek V2 and V3, and what is made like them: R1, Kimi K2, Moonlight. Their heads see keys and
values that are made of a latent.

Source: DeepseekV2Model of llama.cpp's
conversion, and its deepseek2.cpp and llama-context.cpp for what no file says.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import DeepseekV2Config, DeepseekV3Config, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    Merging,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    EXPERTS,
    MLP,
    NORMS,
    OUTER,
    in_layers,
    widths,
)
from deployments.engine.loading.gguf.architectures.rope import rope_parameters
from deployments.engine.loading.gguf.block_types import Floats
from deployments.engine.loading.gguf.facts import GGUFFacts
from deployments.engine.loading.gguf.weight_source import Shape

SOFTMAX, SIGMOID = 1, 2  # what makes weights of experts of a router's logits
# Older files do not have the groups of experts. By layers and experts: how many groups the models
# of 236B and 671B have, and how many of them a token goes to.
KNOWN_GROUPS = {(60, 160): (8, 3), (61, 256): (8, 4)}
LOG_MULTIPLIER = 0.1  # of a mean scale of 1


def _parts_of_latents(config: PretrainedConfig) -> tuple[Shape, ...]:
    n_heads, rank = config.num_attention_heads, config.kv_lora_rank
    return (n_heads, rank, config.qk_nope_head_dim), (n_heads, config.v_head_dim, rank)


def _keys_and_values(parts: Sequence[Floats]) -> Floats:
    """Each head has its keys' rows, then its values'. Files have the keys transposed, so that
    queries can be multiplied with them."""
    keys, values = parts
    return np.concatenate([keys.swapaxes(1, 2), values], axis=1)


LAYERS = in_layers(
    {
        "self_attn.q_proj.weight": "attn_q.weight",
        "self_attn.q_a_proj.weight": "attn_q_a.weight",
        "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
        "self_attn.q_b_proj.weight": "attn_q_b.weight",
        "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
        "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
        "self_attn.kv_b_proj.weight": TensorRecipe(
            ("blk.{}.attn_k_b.weight", "blk.{}.attn_v_b.weight"),
            merging=Merging(_parts_of_latents, _keys_and_values),
            otherwise=TensorRecipe(("blk.{}.attn_kv_b.weight",)),  # of older files
        ),
        "self_attn.o_proj.weight": "attn_output.weight",
        "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
        "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight",
        "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
        "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    }
)


def _deepseek2(facts: GGUFFacts) -> PretrainedConfig:
    fields = {**widths(facts), **_attention(facts), **_experts(facts)}
    n_groups, n_groups_used = _groups(facts, fields)
    fields |= {"n_group": n_groups, "topk_group": n_groups_used}
    norms = facts.optional_flag("expert_weights_norm") or False
    if _is_sigmoid(facts, fields["first_k_dense_replace"]):
        # Layers that draft are left out.
        return DeepseekV3Config(**fields, norm_topk_prob=norms, num_mtp_layers=0)
    if norms:
        raise facts.error("expert_weights_norm", "DeepSeek V2 has no weights that add up to 1")
    method = "group_limited_greedy" if n_groups > 1 else "greedy"
    return DeepseekV2Config(**fields, norm_topk_prob=False, topk_method=method)


def _attention(facts: GGUFFacts) -> dict[str, Any]:
    # Files with split parts say that latents have a single head, and give the sizes of the heads
    # that are made of them by other names.
    facts.optional_whole("attention.head_count_kv")
    n_keys, n_values = (facts.size(f"attention.{part}_length") for part in ("key", "value"))
    n_keys = facts.optional_whole("attention.key_length_mla") or n_keys
    n_rotated = facts.size("rope.dimension_count")
    if n_rotated >= n_keys:
        raise facts.error("rope.dimension_count", f"it is not below {n_keys}, the size of a key")
    return {
        "num_key_value_heads": facts.size("attention.head_count"),
        "q_lora_rank": facts.optional_whole("attention.q_lora_rank") or None,
        "kv_lora_rank": facts.size("attention.kv_lora_rank"),
        "qk_rope_head_dim": n_rotated,
        "qk_nope_head_dim": n_keys - n_rotated,
        "v_head_dim": facts.optional_whole("attention.value_length_mla") or n_values,
        "rope_parameters": _rope(facts, n_rotated),
    }


def _rope(facts: GGUFFacts, n_rotated: int) -> dict[str, Any]:
    found = rope_parameters(facts, n_rotated)
    multiplier = facts.optional_number("rope.scaling.yarn_log_multiplier")
    if found["rope_type"] != "yarn" or not multiplier:
        return found
    # The other scale is in no file. llama.cpp takes it for the same, as it is in all such models.
    scale = round(multiplier / LOG_MULTIPLIER, 6)
    return {**found, "mscale": scale, "mscale_all_dim": scale}


def _experts(facts: GGUFFacts) -> dict[str, Any]:
    return {
        "intermediate_size": facts.size("feed_forward_length"),
        "moe_intermediate_size": facts.size("expert_feed_forward_length"),
        "n_routed_experts": facts.size("expert_count"),
        "n_shared_experts": facts.size("expert_shared_count"),
        "num_experts_per_tok": facts.size("expert_used_count"),
        "routed_scaling_factor": facts.optional_number("expert_weights_scale") or 1.0,
        "first_k_dense_replace": facts.optional_whole("leading_dense_block_count") or 0,
    }


def _groups(facts: GGUFFacts, fields: dict[str, Any]) -> tuple[int, int]:
    n_groups = facts.optional_whole("expert_group_count")
    n_used = facts.optional_whole("expert_group_used_count")
    if n_groups and n_used:
        return n_groups, n_used
    known = fields["num_hidden_layers"], fields["n_routed_experts"]
    return KNOWN_GROUPS.get(known, (1, 1))


def _is_sigmoid(facts: GGUFFacts, first_with_experts: int) -> bool:
    kind = facts.optional_whole("expert_gating_func")
    if not kind:
        return facts.has_tensor(f"blk.{first_with_experts}.exp_probs_b.bias")
    if kind not in (SOFTMAX, SIGMOID):
        raise facts.error("expert_gating_func", f"{kind} is not supported")
    return kind == SIGMOID


DEEPSEEK2 = GGUFArchitecture(_deepseek2, {**OUTER, **MLP, **NORMS, **EXPERTS, **LAYERS})

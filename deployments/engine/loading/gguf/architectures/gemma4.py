"""Gemma 4, whose layers differ: some see a window, some have no keys of their own.

Source: Gemma4Model of llama.cpp's conversion, and its gemma4.cpp.
"""

from typing import Any

from transformers import Gemma4TextConfig, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    ATTENTION,
    GATE_UP_OF_EXPERTS,
    MLP,
    OUTER,
    in_layers,
    sizes,
)
from deployments.engine.loading.gguf.architectures.rope import FREQUENCY_FACTORS
from deployments.engine.loading.gguf.facts import GGUFFacts

ROTATED, STILL = 1.0, 1e30  # what frequencies are divided by
KV_HEADS = "attention.head_count_kv"
OF_KEYS = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
EMBEDDED_BY_LAYER = "per_layer_token_embd.weight"

EMBEDDINGS = {
    "model.embed_tokens_per_layer.weight": TensorRecipe((EMBEDDED_BY_LAYER,)),
    "model.per_layer_model_projection.weight": TensorRecipe(("per_layer_model_proj.weight",)),
    "model.per_layer_projection_norm.weight": TensorRecipe(("per_layer_proj_norm.weight",)),
}
LAYERS = in_layers(
    {
        "input_layernorm.weight": "attn_norm.weight",
        "post_attention_layernorm.weight": "post_attention_norm.weight",
        "pre_feedforward_layernorm.weight": "ffn_norm.weight",
        "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
        "self_attn.q_norm.weight": "attn_q_norm.weight",
        "self_attn.k_norm.weight": "attn_k_norm.weight",
        "layer_scalar": "layer_output_scale.weight",
        "per_layer_input_gate.weight": "inp_gate.weight",
        "per_layer_projection.weight": "proj.weight",
        "post_per_layer_input_norm.weight": "post_norm.weight",
        "router.proj.weight": "ffn_gate_inp.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.gate_up_proj": GATE_UP_OF_EXPERTS,
        "experts.down_proj": "ffn_down_exps.weight",
        "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
        "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
        "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    }
)


def _gemma4(facts: GGUFFacts) -> PretrainedConfig:
    pattern = "attention.sliding_window_pattern"
    sees_window = facts.flags_by_layer(pattern)
    if sees_window[-1]:
        raise facts.error(pattern, "the last layer has a window, which is not supported")
    n_heads, n_window_heads = _kv_heads(facts, sees_window)
    fields = sizes(facts, n_window_heads)
    n_shared = facts.optional_whole("attention.shared_kv_layers") or 0
    first_full = sees_window.index(False)
    head_dim = fields.pop("head_dim")
    return Gemma4TextConfig(
        **fields,
        **_mlp(facts, n_shared),
        **_experts(facts),
        **_embeddings_by_layer(facts),
        head_dim=_window_head_dim(facts),
        global_head_dim=head_dim,
        num_global_key_value_heads=n_heads,
        num_kv_shared_layers=n_shared,
        attention_k_eq_v=not facts.has_tensor(f"blk.{first_full}.attn_v.weight"),
        layer_types=["sliding_attention" if sees else "full_attention" for sees in sees_window],
        sliding_window=facts.size("attention.sliding_window"),
        rope_parameters=_rope(facts, head_dim),
        final_logit_softcapping=facts.optional_number("final_logit_softcapping"),
    )


def _kv_heads(facts: GGUFFacts, sees_window: list[bool]) -> tuple[int, int]:
    """Heads of keys in layers that see all, and in those that see a window."""
    n_heads = facts.by_layer(KV_HEADS)
    found = [
        {n for n, sees in zip(n_heads, sees_window, strict=True) if sees is has_window}
        for has_window in (False, True)
    ]
    if any(len(numbers) != 1 for numbers in found):
        raise facts.error(KV_HEADS, "layers of a kind do not have it in common, or there are none")
    return found[0].pop(), found[1].pop()


def _window_head_dim(facts: GGUFFacts) -> int:
    found = facts.size("attention.key_length_swa")
    for name in ("attention.value_length_swa", "rope.dimension_count_swa"):
        if facts.size(name) != found:
            raise facts.error(name, f"it is not {found}, the size of a key")
    return found


def _mlp(facts: GGUFFacts, n_shared: int) -> dict[str, Any]:
    """Layers that share keys may be twice as wide. Files may have their own keys besides, which
    nobody uses."""
    name = "feed_forward_length"
    found, first_shared = facts.by_layer(name), facts.n_layers() - n_shared
    is_double = n_shared > 0 and found[-1] == 2 * found[0]
    last = 2 * found[0] if is_double else found[0]
    if found != [found[0]] * first_shared + [last] * n_shared:
        raise facts.error(name, "it differs otherwise than between layers that share keys and not")
    facts.leave_out(f"blk.{n}.{key}" for n in range(first_shared, len(found)) for key in OF_KEYS)
    return {"intermediate_size": found[0], "use_double_wide_mlp": is_double}


def _experts(facts: GGUFFacts) -> dict[str, Any]:
    n_experts = facts.optional_whole("expert_count") or None
    return {
        "enable_moe_block": n_experts is not None,
        "num_experts": n_experts,
        "top_k_experts": facts.optional_whole("expert_used_count") or None,
        "moe_intermediate_size": facts.optional_whole("expert_feed_forward_length") or None,
    }


def _embeddings_by_layer(facts: GGUFFacts) -> dict[str, Any]:
    size = facts.optional_whole("embedding_length_per_layer_input") or 0
    n_tokens = facts.n_rows(EMBEDDED_BY_LAYER) if size else facts.vocab_size()
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": n_tokens}


def _rope(facts: GGUFFacts, head_dim: int) -> dict[str, Any]:
    """Layers that see all rotate the first of a head's pairs. Files say that they rotate all, and
    divide the frequencies of the others by so much that nothing is left."""
    name = "rope.dimension_count"
    if facts.size(name) != head_dim:
        raise facts.error(name, f"it is not {head_dim}, a whole head")
    factors = facts.factors(FREQUENCY_FACTORS, head_dim // 2)
    n_rotated = (factors or []).count(ROTATED)
    part = 2 * n_rotated / head_dim
    is_known = factors == [ROTATED] * n_rotated + [STILL] * (head_dim // 2 - n_rotated)
    if not is_known or int(part * head_dim // 2) != n_rotated:  # as transformers computes it
        raise facts.error(name, f"{FREQUENCY_FACTORS} is missing, or other than {STILL} or 1")
    return {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": facts.number("rope.freq_base"),
            "partial_rotary_factor": part,
        },
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": facts.number("rope.freq_base_swa"),
        },
    }


GEMMA4 = GGUFArchitecture(_gemma4, {**OUTER, **ATTENTION, **MLP, **EMBEDDINGS, **LAYERS})

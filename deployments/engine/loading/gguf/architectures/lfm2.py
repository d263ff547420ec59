"""LFM2, some of whose layers are short convolutions.

Source: LFM2Model of llama.cpp's conversion.
"""

from transformers import Lfm2Config, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    ATTENTION,
    OUTER,
    in_layers,
    sizes,
)
from deployments.engine.loading.gguf.architectures.rope import rope_parameters
from deployments.engine.loading.gguf.facts import GGUFFacts

LAYERS = in_layers(
    {
        "conv.conv.weight": "shortconv.conv.weight",
        "conv.in_proj.weight": "shortconv.in_proj.weight",
        "conv.out_proj.weight": "shortconv.out_proj.weight",
        "feed_forward.w1.weight": "ffn_gate.weight",
        "feed_forward.w2.weight": "ffn_down.weight",
        "feed_forward.w3.weight": "ffn_up.weight",
        "operator_norm.weight": "attn_norm.weight",
        "ffn_norm.weight": "ffn_norm.weight",
        "self_attn.out_proj.weight": "attn_output.weight",
        "self_attn.q_layernorm.weight": "attn_q_norm.weight",
        "self_attn.k_layernorm.weight": "attn_k_norm.weight",
    }
)
# It stands behind the last layer, whatever files call it.
LAST_NORM = {"model.embedding_norm.weight": TensorRecipe(("token_embd_norm.weight",))}


def _lfm2(facts: GGUFFacts) -> PretrainedConfig:
    n_kv_heads = facts.by_layer("attention.head_count_kv")  # 0 of a convolution
    if len(found := {*n_kv_heads} - {0}) != 1:
        raise facts.error("attention.head_count_kv", "layers that attend do not have it in common")
    fields = sizes(facts, found.pop())
    norm_eps = fields.pop("rms_norm_eps")
    return Lfm2Config(
        **fields,
        norm_eps=norm_eps,
        intermediate_size=facts.size("feed_forward_length"),
        block_auto_adjust_ff_dim=False,  # it is the adjusted one
        conv_L_cache=facts.size("shortconv.l_cache"),
        layer_types=["full_attention" if number else "conv" for number in n_kv_heads],
        rope_parameters=rope_parameters(facts, fields["head_dim"]),
    )


LFM2 = GGUFArchitecture(_lfm2, {**OUTER, **ATTENTION, **LAYERS, **LAST_NORM})

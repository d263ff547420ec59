"""Phi 3 and 4, whose Q, K and V are one matrix, as are gate and up, in files as in transformers.
Source: Phi3MiniModel of llama.cpp's conversion."""

from transformers import Phi3Config, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import GGUFArchitecture
from deployments.engine.loading.gguf.architectures.decoders import (
    DECODER,
    in_layers,
    rotated_part,
    sizes,
)
from deployments.engine.loading.gguf.architectures.rope import long_rope_parameters
from deployments.engine.loading.gguf.facts import GGUFFacts

FUSED = in_layers(
    {
        "self_attn.qkv_proj.weight": "attn_qkv.weight",
        "mlp.gate_up_proj.weight": "ffn_up.weight",
    }
)


def _phi3(facts: GGUFFacts) -> PretrainedConfig:
    fields = sizes(facts)
    head_dim = fields.pop("head_dim")
    if head_dim != fields["hidden_size"] // fields["num_attention_heads"]:
        raise facts.error("attention.key_length", "it is not the hidden size / the heads")
    n_rotated, part = rotated_part(facts, head_dim)
    original = facts.optional_whole("rope.scaling.original_context_length")
    return Phi3Config(
        **fields,
        intermediate_size=facts.size("feed_forward_length"),
        original_max_position_embeddings=original or fields["max_position_embeddings"],
        rope_parameters={**long_rope_parameters(facts, n_rotated), "partial_rotary_factor": part},
        sliding_window=facts.optional_whole("attention.sliding_window") or None,  # Phi 4 has 0
    )


PHI3 = GGUFArchitecture(_phi3, {**DECODER, **FUSED})

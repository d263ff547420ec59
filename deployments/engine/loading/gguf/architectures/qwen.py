"""Qwen 2, Qwen 3 and Qwen 3's experts.

Source: Qwen2Model, Qwen3Model and Qwen3MoeModel of llama.cpp's conversion.
"""

from transformers import PretrainedConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig

from deployments.engine.loading.gguf.architectures.architecture import GGUFArchitecture
from deployments.engine.loading.gguf.architectures.decoders import (
    DECODER,
    EXPERTS,
    decoder,
    has_bias,
    in_layers,
)
from deployments.engine.loading.gguf.facts import GGUFFacts

HEAD_NORMS = in_layers(
    {
        "self_attn.q_norm.weight": "attn_q_norm.weight",
        "self_attn.k_norm.weight": "attn_k_norm.weight",
    }
)


def _qwen2(facts: GGUFFacts) -> PretrainedConfig:
    return Qwen2Config(**decoder(facts))


def _qwen3(facts: GGUFFacts) -> PretrainedConfig:
    return Qwen3Config(**decoder(facts), attention_bias=has_bias(facts, "attn_q"))


def _qwen3_moe(facts: GGUFFacts) -> PretrainedConfig:
    return Qwen3MoeConfig(
        **decoder(facts),
        attention_bias=has_bias(facts, "attn_q"),
        num_experts=facts.size("expert_count"),
        num_experts_per_tok=facts.size("expert_used_count"),
        moe_intermediate_size=facts.size("expert_feed_forward_length"),
        norm_topk_prob=True,  # llama.cpp computes so, whatever the original says
    )


QWEN2 = GGUFArchitecture(_qwen2, DECODER)
QWEN3 = GGUFArchitecture(_qwen3, {**DECODER, **HEAD_NORMS})
QWEN3_MOE = GGUFArchitecture(_qwen3_moe, {**DECODER, **HEAD_NORMS, **EXPERTS})

"""Llama, Mistral and Mixtral, which files call llama as well, and what is made like them: Granite
and SmolLM3.

Source: LlamaModel, GraniteModel and SmolLM3Model of llama.cpp's conversion, and its granite.cpp and
smollm3.cpp for what no file says.
"""

from typing import Any

from transformers import (
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    SmolLM3Config,
)

from deployments.engine.loading.gguf.architectures.architecture import GGUFArchitecture
from deployments.engine.loading.gguf.architectures.decoders import (
    DECODER,
    EXPERTS,
    ROTATED,
    decoder,
    has_bias,
)
from deployments.engine.loading.gguf.facts import GGUFFacts


def _llama(facts: GGUFFacts) -> PretrainedConfig:
    fields = decoder(facts)
    # Files do not have the windows of Mistral's first models, and llama.cpp has none either.
    n_experts = facts.optional_whole("expert_count")
    n_used = facts.optional_whole("expert_used_count")
    if not n_experts:
        return LlamaConfig(**fields, **_biases(facts))
    return MixtralConfig(
        **fields,
        num_local_experts=n_experts,
        num_experts_per_tok=n_used or facts.size("expert_used_count"),
        sliding_window=None,
    )


def _granite(facts: GGUFFacts) -> PretrainedConfig:
    fields = decoder(facts)
    if facts.optional_flag("rope.scaling.finetuned") is False:
        raise facts.error("rope.scaling.finetuned", "Granite without rotation is not supported")
    return GraniteConfig(
        **fields,
        **_biases(facts),
        attention_multiplier=facts.number("attention.scale"),
        embedding_multiplier=facts.number("embedding_scale"),
        residual_multiplier=facts.number("residual_scale"),
        logits_scaling=facts.number("logit_scale"),
    )


def _smollm3(facts: GGUFFacts) -> PretrainedConfig:
    """Each fourth layer does not rotate: the class has that by default."""
    return SmolLM3Config(**decoder(facts), **_biases(facts))


def _biases(facts: GGUFFacts) -> dict[str, Any]:
    return {"attention_bias": has_bias(facts, "attn_q"), "mlp_bias": has_bias(facts, "ffn_gate")}


LLAMA = GGUFArchitecture(_llama, {**DECODER, **ROTATED, **EXPERTS})
GRANITE = GGUFArchitecture(_granite, {**DECODER, **ROTATED})
SMOLLM3 = GGUFArchitecture(_smollm3, {**DECODER, **ROTATED})

"""Tiny random models of the architectures that the engine must serve, built in code."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DiffLlamaConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GlmMoeDsaConfig,
    GptOssConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    Mamba2Config,
    MambaConfig,
    MiniMaxConfig,
    MistralConfig,
    Phi3Config,
    PhimoeConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
)

from deployments.engine.forward.recurrent import can_keep_states

VOCAB = 128

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    # Far from uniform, so that no two tokens come close to a tie.
    "initializer_range": 0.5,
}

NO_ATTENTION: dict[str, Any] = {
    name: size
    for name, size in SIZES.items()
    if name in ("vocab_size", "hidden_size", "num_hidden_layers", "initializer_range")
    or name.endswith("token_id")
}

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SIZES),
    "qwen3": lambda: Qwen3Config(**SIZES),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=24),
    "gemma3": lambda: Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 6},
        sliding_window=16,
        query_pre_attn_scalar=8,
        final_logit_softcapping=None,
        tie_word_embeddings=False,
    ),
    "gemma2": lambda: Gemma2Config(
        **SIZES,
        sliding_window=16,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=None,
        tie_word_embeddings=False,
    ),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    # These two tell their windows to the mask alone.
    "qwen2_moe": lambda: Qwen2MoeConfig(
        **SIZES,
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=1,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    ),
    "phimoe": lambda: PhimoeConfig(
        **SIZES, sliding_window=16, num_local_experts=4, num_experts_per_tok=2
    ),
    "gpt_oss": lambda: GptOssConfig(
        **SIZES,
        sliding_window=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    ),
    "gemma4": lambda: Gemma4TextConfig(
        **{**SIZES, "num_hidden_layers": 6},
        global_head_dim=16,
        sliding_window=16,
        hidden_size_per_layer_input=0,
        num_kv_shared_layers=0,
        final_logit_softcapping=None,
        tie_word_embeddings=False,
    ),
    "deepseek_v3": lambda: DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4, "head_dim": 8},
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=32,
        first_k_dense_replace=1,
    ),
    # Latents of 8 tokens that an index chooses; the second layer has those of the first.
    "glm_moe_dsa": lambda: GlmMoeDsaConfig(
        **{**SIZES, "num_key_value_heads": 4, "head_dim": 8},
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        index_topk=8,
        index_head_dim=8,
        index_n_heads=32,
        indexer_types=["full", "shared", "full"],
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=32,
    ),
    # Windows that tumble, of 16 tokens, and a temperature that grows each 8 tokens.
    "llama4": lambda: Llama4TextConfig(
        **{**SIZES, "num_hidden_layers": 4},
        attention_chunk_size=16,
        floor_scale=8,
        num_local_experts=4,
        intermediate_size_mlp=64,
        moe_layers=[1, 2, 3],
    ),
    # It attends by distance alone, without positions.
    "falcon": lambda: FalconConfig(
        **{name: size for name, size in SIZES.items() if name != "head_dim"},
        num_kv_heads=2,
        alibi=True,
        new_decoder_architecture=True,
        tie_word_embeddings=False,
    ),
    # The next three are run row by row. One attends twice in a layer, one holds its states in its
    # modules, one returns them.
    "diffllama": lambda: DiffLlamaConfig(**SIZES),
    "recurrent_gemma": lambda: RecurrentGemmaConfig(
        **SIZES, lru_width=32, attention_window_size=16
    ),
    "rwkv": lambda: RwkvConfig(**NO_ATTENTION, context_length=512),
    # Its frequencies depend on whether a sequence is longer than 64 tokens.
    "phi3_longrope": lambda: Phi3Config(
        **{**SIZES, "pad_token_id": 0},
        original_max_position_embeddings=64,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [4.0] * 4,
            "original_max_position_embeddings": 64,
            "factor": 8.0,
        },
    ),
}


# Those of them that transformers runs row by row.
BY_ROWS = frozenset({"diffllama", "recurrent_gemma", "rwkv"})
# Layers with a state: three of four, all, all of the older kind, and two of three, whose states are
# the last inputs of short convolutions.
STATES: dict[str, Callable[[], PretrainedConfig]] = {
    "qwen3_next": lambda: Qwen3NextConfig(
        **{**SIZES, "num_hidden_layers": 4},
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    ),
    "mamba2": lambda: Mamba2Config(
        **NO_ATTENTION, num_heads=4, head_dim=16, state_size=16, n_groups=1, chunk_size=8
    ),
    "mamba": lambda: MambaConfig(**NO_ATTENTION, state_size=16),
    "lfm2": lambda: Lfm2Config(
        **SIZES, layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=False
    ),
}
if can_keep_states():
    CONFIGS |= STATES
    # Lightning attention in every second layer, in blocks of 8 tokens.
    CONFIGS["minimax"] = lambda: MiniMaxConfig(
        **{**SIZES, "num_hidden_layers": 4},
        layer_types=["linear_attention", "full_attention"] * 2,
        block_size=8,
        num_local_experts=4,
        num_experts_per_tok=2,
    )


def tiny_model(architecture: str = "llama", seed: int = 0) -> PreTrainedModel:
    """A random float32 model in evaluation mode; the same seed gives the same weights."""
    return from_config(CONFIGS[architecture](), seed)


def from_config(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model.float().eval()


def alike(model: PreTrainedModel, noise: float = 0.1) -> PreTrainedModel:
    """A model that often says what this one says."""
    torch.manual_seed(1)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight += noise * weight.std(correction=0) * torch.randn_like(weight)
    return other


def forgetful(architecture: str = "llama") -> PreTrainedModel:
    """A model that nearly goes by the last token alone, and so soon repeats itself for a while."""
    model = tiny_model(architecture)
    for name, weight in model.named_parameters():
        if "o_proj" in name:
            weight.data.mul_(0.01)
        if "out_proj" in name:  # states still have a say
            weight.data.mul_(0.02)
    return model

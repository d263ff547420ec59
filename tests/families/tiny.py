"""Tiny random models of every causal language model of the installed transformers."""

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

MODEL_TYPES = tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
VOCAB = 128
LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, EXPERTS, CONTEXT = 4, 4, 2, 8, 32, 4, 512
WINDOW = 16  # tokens
WEIGHT_STD = 0.3  # so that no two tokens come close to a tie

# By the names that configurations have for them. A configuration gets those that it has.
SIZES: dict[str, object] = {
    **dict.fromkeys(("vocab_size", "text_vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "dim"), HIDDEN),
    **dict.fromkeys(("word_embed_proj_dim", "embedding_size", "attention_hidden_size"), HIDDEN),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), LAYERS),
    **dict.fromkeys(("decoder_layers", "encoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(("swa_num_attention_heads",), HEADS),
    **dict.fromkeys(("num_key_value_heads", "swa_num_key_value_heads"), KV_HEADS),
    **dict.fromkeys(("head_dim", "swa_head_dim", "v_head_dim", "swa_v_head_dim"), HEAD_DIM),
    "global_head_dim": 2 * HEAD_DIM,
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "index_head_dim"), HEAD_DIM),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), HEAD_DIM),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), KV_HEADS),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "hidden_size_per_layer_input"), 16),
    # With few heads many keys have an index of 0, and which of them is chosen is chance.
    **dict.fromkeys(("index_n_heads", "indexer_n_heads"), 32),
    "index_topk": 8,
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 64),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "dense_intermediate_size"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), EXPERTS),
    **dict.fromkeys(("moe_num_experts",), EXPERTS),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "moe_k"), 1),
    **dict.fromkeys(("n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), CONTEXT),
    **dict.fromkeys(("model_max_length",), CONTEXT),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_window"), WINDOW),
    **dict.fromkeys(("attention_chunk_size", "floor_scale"), WINDOW),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), HEADS),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "state_size", "mamba_d_state"), 16),
    **dict.fromkeys(("mamba_n_groups", "n_groups"), 1),
    "tie_word_embeddings": False,
    "is_decoder": True,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"), None),
}
# Models that count positions from this one on: no prompt has it, nor does any draw it.
PADDED: dict[str, object] = {"vocab_size": VOCAB + 1, "pad_token_id": VOCAB}
IDS: dict[str, object] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
ALTERNATING = ["linear_attention", "full_attention"] * (LAYERS // 2)
MULTI_HEAD: dict[str, object] = {"num_key_value_heads": HEADS}
INDEXED: dict[str, object] = {
    "indexer_kv_heads": 1,
    "indexer_head_dim": HEAD_DIM,
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
    "hc_lowrank": 16,
    "indexer_n_heads": 32,
}
# Attention over the embeddings beside the hidden states.
SHARED: dict[str, object] = {
    **MULTI_HEAD,
    "attention_hidden_size": 2 * HIDDEN,
    "attention_head_dim": 2 * HIDDEN // HEADS,
}
# What a type needs beside these, or in their place.
OWN: dict[str, dict[str, object]] = {
    **dict.fromkeys(("camembert", "data2vec-text", "roberta", "roberta-prelayernorm"), PADDED),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-xl"), PADDED),
    "xmod": {**PADDED, "default_language": "en_XX"},
    "bloom": {"seq_length": CONTEXT},
    "inkling2_text": {"unpadded_vocab_size": VOCAB},
    "inkling2_loop_text": {
        "unpadded_vocab_size": VOCAB,
        "n_layers_per_attn_res_block": 1,
        "loop_layer_index_start": 1,
        "loop_layer_index_end": 3,
    },
    **dict.fromkeys(("qwen4_exp", "qwen4_exp_text"), INDEXED),
    "prophetnet": {
        **PADDED,
        **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), LAYERS),
        **dict.fromkeys(("num_decoder_attention_heads", "num_encoder_attention_heads"), HEADS),
    },
    # `context_length` does the same for those that do not say it.
    "recurrent_gemma": {"max_position_embeddings": CONTEXT},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local"] * LAYERS},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},
    "zamba": {
        **SHARED,
        "layers_block_type": ["linear_attention", "hybrid"] * (LAYERS // 2),
    },
    "bailing_hybrid": {"layer_group_size": 2},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "dbrx": {"attn_config": {"kv_n_heads": KV_HEADS, "rope_theta": 10_000.0, "clip_qkv": 8.0}},
    "dots3_note_vision_encoder": {
        "num_hidden_layers": 42,
        "adapter_in_dim": HIDDEN,
        "adapter_out_dim": HIDDEN,
    },
    "dots3_note_audio_encoder": {"adapter_input_size": HIDDEN, "adapter_out_dim": HIDDEN},
    "dory": {"n_input_layers": 1, "n_recurrent_layers": 2, "n_output_layers": 1},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma4_text": {"pad_token_id": 0},
    "gemma4_unified_text": {"pad_token_id": 0},
    "mllama_text_model": IDS,
    "gemma3n_text": {"num_hidden_layers": 10, "num_kv_shared_layers": 5},
    "lfm2": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "zamba2": {**SHARED, "layers_block_type": ["mamba", "hybrid"] * (LAYERS // 2)},
    "bamba": {"attn_layer_indices": [1, 3]},
    "codegen": {"rotary_dim": 4},
    "cwm": IDS,
    **dict.fromkeys(("emu3", "emu3_text_model"), IDS),
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]], "window_size": WINDOW},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {"layer_types": ALTERNATING},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": ALTERNATING},
    "mamba2": {"num_heads": HEADS, "head_dim": 2 * HIDDEN // HEADS},
    "modernbert-decoder": {**IDS, "sep_token_id": 2, "cls_token_id": 1},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_config(model_type: str) -> PretrainedConfig:
    """Raises whatever the configuration raises that these sizes do not fit."""
    default = CONFIG_MAPPING[model_type]()
    sizes = _sizes(default)
    for name in default.sub_configs:
        if (sub := getattr(default, name, None)) is not None:
            own = OWN.get(sub.model_type, {})
            sizes[name] = {**_sizes(sub), "model_type": sub.model_type, **own}
    config: PretrainedConfig = type(default)(**sizes | OWN.get(model_type, {}))
    return config


def _sizes(config: PretrainedConfig) -> dict[str, object]:
    sizes = {name: size for name, size in SIZES.items() if _can_be_set(config, name)}
    if "kv_lora_rank" in sizes:
        sizes |= MULTI_HEAD
    return sizes


def _can_be_set(config: PretrainedConfig, name: str) -> bool:
    """Whether it has a field of this name that is not computed from others."""
    if isinstance(getattr(type(config), name, None), property):
        return False
    try:
        return hasattr(config, name)
    except Exception:  # of several kinds: it differs by layer
        return True


def tiny_model(model_type: str) -> PreTrainedModel:
    """Makes a model in float32 and evaluation mode, always with the same weights."""
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(tiny_config(model_type))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("weight") and weight.ndim == 2:
                weight.normal_(0, WEIGHT_STD)
            elif weight.ndim == 1 and ("norm" in name or name.endswith("bias")):
                weight.add_(torch.empty_like(weight).uniform_(-0.2, 0.2))
    if model.generation_config is not None:
        model.generation_config.eos_token_id = None  # each reference has equally many tokens
    return model.float().eval()

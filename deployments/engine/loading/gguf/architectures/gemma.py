"""Gemma 2 and 3. Files have the norms with the 1 that the models add. Source: Gemma2Model and
Gemma3Model of llama.cpp's conversion, and its gemma2.cpp and gemma3.cpp for what no file says."""

from collections.abc import Mapping
from typing import Any

from transformers import Gemma2Config, Gemma3TextConfig, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    ATTENTION,
    LAYER,
    MLP,
    OUTER,
    decoder,
)
from deployments.engine.loading.gguf.architectures.undoing import without_one
from deployments.engine.loading.gguf.facts import GGUFFacts

LOCAL_THETA = 10_000.0
FULL_EVERY = 6  # of Gemma 3's layers
# The number of layers of the models that scale queries by hidden size / heads: 27B of each.
GEMMA2_27B_LAYERS, GEMMA3_27B_LAYERS = 46, 62
GEMMA2_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


def _norm(tensor: str) -> TensorRecipe:
    return TensorRecipe((f"{tensor}.weight",), undo=without_one)


def _recipes() -> Mapping[str, TensorRecipe]:
    norms = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    }
    return {
        **OUTER,
        **ATTENTION,
        **MLP,
        "model.norm.weight": _norm("output_norm"),
        **{f"{LAYER}{name}.weight": _norm(f"blk.{{}}.{norm}") for name, norm in norms.items()},
    }


def _fields(facts: GGUFFacts, layers_of_27b: int) -> dict[str, Any]:
    fields = decoder(facts)
    by_hidden_size = fields["num_hidden_layers"] == layers_of_27b
    scalar = fields["hidden_size"] // fields["num_attention_heads"]
    return {**fields, "query_pre_attn_scalar": scalar if by_hidden_size else fields["head_dim"]}


def _gemma2(facts: GGUFFacts) -> PretrainedConfig:
    fields = _fields(facts, GEMMA2_27B_LAYERS)
    caps = {name: facts.optional_number(name) or cap for name, cap in GEMMA2_CAPS.items()}
    window = facts.size("attention.sliding_window")
    return Gemma2Config(**fields, **caps, sliding_window=window)


def _gemma3(facts: GGUFFacts) -> PretrainedConfig:
    fields = _fields(facts, GEMMA3_27B_LAYERS)
    window = facts.optional_whole("attention.sliding_window")
    theta = facts.optional_number("rope.freq_base_swa") or LOCAL_THETA
    return Gemma3TextConfig(
        **{
            **fields,
            "rope_parameters": {
                "full_attention": fields["rope_parameters"],
                "sliding_attention": {"rope_type": "default", "rope_theta": theta},
            },
        },
        sliding_window=window or None,
        layer_types=[
            "sliding_attention" if window and number % FULL_EVERY else "full_attention"
            for number in range(1, fields["num_hidden_layers"] + 1)
        ],
        final_logit_softcapping=facts.optional_number("final_logit_softcapping"),
    )


GEMMA2 = GGUFArchitecture(_gemma2, _recipes())
GEMMA3 = GGUFArchitecture(_gemma3, _recipes())

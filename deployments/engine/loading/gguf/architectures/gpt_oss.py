"""gpt-oss. Source: GptOssModel of llama.cpp's conversion, and its openai-moe.cpp for what no file
says."""

from transformers import GptOssConfig, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import (
    ATTENTION,
    OUTER,
    decoder,
    in_layers,
    linear,
)
from deployments.engine.loading.gguf.architectures.row_orders import in_turns
from deployments.engine.loading.gguf.facts import GGUFFacts

LAYERS = in_layers(
    {
        "input_layernorm.weight": "attn_norm.weight",
        "post_attention_layernorm.weight": "post_attention_norm.weight",
        "self_attn.sinks": "attn_sinks.weight",
        # Rows of gate and up take turns in the parameters.
        "mlp.experts.gate_up_proj": TensorRecipe(
            ("blk.{}.ffn_gate_exps.weight", "blk.{}.ffn_up_exps.weight"),
            in_turns,
            is_transposed=True,
        ),
        "mlp.experts.gate_up_proj_bias": TensorRecipe(
            ("blk.{}.ffn_gate_exps.bias", "blk.{}.ffn_up_exps.bias"), in_turns, by_weight=True
        ),
        "mlp.experts.down_proj": TensorRecipe(("blk.{}.ffn_down_exps.weight",), is_transposed=True),
        "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    }
)


def _gpt_oss(facts: GGUFFacts) -> PretrainedConfig:
    fields = decoder(facts)
    if fields["rope_parameters"]["rope_type"] == "yarn":
        fields["rope_parameters"]["truncate"] = False  # no file says that it is not
    facts.optional_whole("expert_feed_forward_length")  # the same as that of the layers
    return GptOssConfig(
        **fields,
        num_local_experts=facts.size("expert_count"),
        num_experts_per_tok=facts.size("expert_used_count"),
        sliding_window=facts.size("attention.sliding_window"),
    )


GPT_OSS = GGUFArchitecture(
    _gpt_oss, {**OUTER, **ATTENTION, **LAYERS, **linear("mlp.router", "ffn_gate_inp")}
)

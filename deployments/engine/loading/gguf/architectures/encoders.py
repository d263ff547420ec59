"""BERT and Nomic's BERT, which make vectors of texts. Files call RoBERTa and its like BERT as well:
their positions begin at 0 there.

Source: BertModel, RobertaModel and NomicBertModel of llama.cpp's conversion, and its bert.cpp.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from transformers import AutoModel, BertConfig, NomicBertConfig, PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.decoders import head_dim, in_layers, linear
from deployments.engine.loading.gguf.architectures.rope import rope_parameters
from deployments.engine.loading.gguf.architectures.row_orders import part
from deployments.engine.loading.gguf.facts import GGUFFacts

BERT_LAYER, NOMIC_LAYER = "encoder.layer.{}.", "layers.{}."
TOKEN_TYPES = "token_types.weight"

EMBEDDINGS: Mapping[str, TensorRecipe] = {
    "embeddings.word_embeddings.weight": TensorRecipe(("token_embd.weight",)),
    "embeddings.position_embeddings.weight": TensorRecipe(("position_embd.weight",)),
    "embeddings.token_type_embeddings.weight": TensorRecipe((TOKEN_TYPES,)),
    "embeddings.LayerNorm.weight": TensorRecipe(("token_embd_norm.weight",)),
    "embeddings.LayerNorm.bias": TensorRecipe(("token_embd_norm.bias",)),
}


def _attention(parameters: tuple[str, str, str], layer: str) -> dict[str, TensorRecipe]:
    """Recipes of Q, K and V, each of which has a tensor of its own, or a third of one."""
    recipes = dict[str, TensorRecipe]()
    for nth, (letter, parameter) in enumerate(zip("qkv", parameters, strict=True)):
        for kind in ("weight", "bias"):
            fused = TensorRecipe((f"blk.{{}}.attn_qkv.{kind}",), part(nth, 3), n_parts=3)
            own = TensorRecipe((f"blk.{{}}.attn_{letter}.{kind}",), otherwise=fused)
            recipes[f"{parameter}.{kind}"] = own
    return in_layers(recipes, layer)


def _linear(parameters: Mapping[str, str], layer: str) -> dict[str, TensorRecipe]:
    found = dict[str, TensorRecipe]()
    for parameter, tensor in parameters.items():
        found |= linear(parameter, tensor, layer)
    return found


def _bert(facts: GGUFFacts) -> PretrainedConfig:
    return BertConfig(**_fields(facts))


def _nomic_bert(facts: GGUFFacts) -> PretrainedConfig:
    size = head_dim(facts)
    rope = rope_parameters(facts, size)
    return NomicBertConfig(**_fields(facts), head_dim=size, rope_parameters=rope)


def _fields(facts: GGUFFacts) -> dict[str, Any]:
    if facts.optional_flag("attention.causal") is not False:
        raise facts.error("attention.causal", "it is not false, as that of encoders")
    padding = facts.token_id("padding")
    return {
        "vocab_size": facts.vocab_size(),
        "type_vocab_size": facts.n_rows(TOKEN_TYPES),
        "hidden_size": facts.size("embedding_length"),
        "intermediate_size": facts.size("feed_forward_length"),
        "num_hidden_layers": facts.n_layers(),
        "num_attention_heads": facts.size("attention.head_count"),
        "max_position_embeddings": facts.size("context_length"),
        "layer_norm_eps": facts.number("attention.layer_norm_epsilon"),
        **({} if padding is None else {"pad_token_id": padding}),
    }


BERT = GGUFArchitecture(
    _bert,
    {
        **EMBEDDINGS,
        **_attention(
            ("attention.self.query", "attention.self.key", "attention.self.value"), BERT_LAYER
        ),
        **_linear(
            {
                "attention.output.dense": "attn_output",
                "attention.output.LayerNorm": "attn_output_norm",
                "intermediate.dense": "ffn_up",
                "output.dense": "ffn_down",
                "output.LayerNorm": "layer_output_norm",
            },
            BERT_LAYER,
        ),
    },
    # Files do not have its pooler, which pools in no way that they name.
    partial(AutoModel.from_config, add_pooling_layer=False),
)
NOMIC_BERT = GGUFArchitecture(
    _nomic_bert,
    {
        **EMBEDDINGS,
        **_attention(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), NOMIC_LAYER),
        **_linear(
            {
                "self_attn.o_proj": "attn_output",
                "post_attention_layernorm": "attn_output_norm",
                "mlp.gate_proj": "ffn_gate",
                "mlp.up_proj": "ffn_up",
                "mlp.down_proj": "ffn_down",
                "post_mlp_layernorm": "layer_output_norm",
            },
            NOMIC_LAYER,
        ),
    },
    AutoModel.from_config,
)

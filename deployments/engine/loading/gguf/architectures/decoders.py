"""Reads what decoders of all architectures have in common: the fields of their configs, and the
names of their tensors.

Source: `TextModel.set_gguf_parameters` of llama.cpp's conversion, and its tensor_mapping.py.
"""

from collections.abc import Mapping
from typing import Any

from deployments.engine.loading.gguf.architectures.architecture import TensorRecipe
from deployments.engine.loading.gguf.architectures.rope import rope_parameters
from deployments.engine.loading.gguf.architectures.row_orders import (
    halves_of_heads,
    joined_by_expert,
)
from deployments.engine.loading.gguf.facts import GGUFFacts

LAYER = "model.layers.{}."
END_TOKENS = ("eos", "eot", "eom")


def head_dim(facts: GGUFFacts) -> int:
    """Raises GGUFError where keys and values are of different lengths."""
    n_heads, hidden_size = facts.size("attention.head_count"), facts.size("embedding_length")
    key_length = facts.optional_whole("attention.key_length") or hidden_size // n_heads
    value_length = facts.optional_whole("attention.value_length")
    if value_length not in (None, key_length):
        raise facts.error("attention.value_length", f"it is not {key_length}, as that of keys")
    return key_length


def rotated_part(facts: GGUFFacts, head_dim: int) -> tuple[int, float]:
    """How many numbers of each head are rotated, and which part of a head this is."""
    n_rotated = facts.optional_whole("rope.dimension_count") or head_dim
    part = n_rotated / head_dim
    if int(head_dim * part) != n_rotated:  # as transformers computes it
        raise facts.error("rope.dimension_count", f"{n_rotated} of {head_dim} is not supported")
    return n_rotated, part


def widths(facts: GGUFFacts) -> dict[str, Any]:
    """The fields of a config that all decoders have, whatever attends."""
    return {
        "vocab_size": facts.vocab_size(),
        "hidden_size": facts.size("embedding_length"),
        "num_hidden_layers": facts.n_layers(),
        "num_attention_heads": facts.size("attention.head_count"),
        "max_position_embeddings": facts.size("context_length"),
        "rms_norm_eps": facts.number("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": not facts.has_tensor("output.weight"),
        "bos_token_id": facts.token_id("bos"),
        "eos_token_id": _end_ids(facts),
        "pad_token_id": facts.token_id("padding"),
    }


def sizes(facts: GGUFFacts, n_kv_heads: int | None = None) -> dict[str, Any]:
    """The fields of a config of a decoder whose keys and values are of one size, but for the rotary
    embedding.

    n_kv_heads: of the layers that attend; None: all do.
    """
    found = widths(facts)
    n_kv_heads = n_kv_heads or facts.optional_whole("attention.head_count_kv")
    return {
        **found,
        "num_key_value_heads": n_kv_heads or found["num_attention_heads"],
        "head_dim": head_dim(facts),
    }


def decoder(facts: GGUFFacts) -> dict[str, Any]:
    """The fields of a config of a decoder whose layers are alike, and rotate whole heads."""
    found = sizes(facts)
    if facts.optional_whole("rope.dimension_count") not in (None, found["head_dim"]):
        raise facts.error("rope.dimension_count", f"it is not {found['head_dim']}, a whole head")
    intermediate_size = facts.optional_whole("feed_forward_length")
    rope = rope_parameters(facts, found["head_dim"])
    return {
        **found,
        "intermediate_size": intermediate_size or facts.size("expert_feed_forward_length"),
        "rope_parameters": rope,
    }


def has_bias(facts: GGUFFacts, name: str) -> bool:
    return facts.has_tensor(f"blk.0.{name}.bias")


def in_layers(
    recipes: Mapping[str, TensorRecipe | str], layer: str = LAYER
) -> dict[str, TensorRecipe]:
    """Recipes of a layer by whole names. A text is the name of a tensor that a parameter is."""
    return {
        layer + name: recipe
        if isinstance(recipe, TensorRecipe)
        else TensorRecipe((f"blk.{{}}.{recipe}",))
        for name, recipe in recipes.items()
    }


def linear(parameter: str, tensor: str, layer: str = LAYER) -> dict[str, TensorRecipe]:
    """The recipes of a linear layer's weight and bias, whose rows are as in the file."""
    names = {f"{parameter}.{kind}": f"{tensor}.{kind}" for kind in ("weight", "bias")}
    return in_layers(names, layer)


OUTER: Mapping[str, TensorRecipe] = {
    "model.embed_tokens.weight": TensorRecipe(("token_embd.weight",)),
    "model.norm.weight": TensorRecipe(("output_norm.weight",)),
    "lm_head.weight": TensorRecipe(("output.weight",)),
}
ATTENTION: Mapping[str, TensorRecipe] = {
    **linear("self_attn.q_proj", "attn_q"),
    **linear("self_attn.k_proj", "attn_k"),
    **linear("self_attn.v_proj", "attn_v"),
    **linear("self_attn.o_proj", "attn_output"),
}
MLP: Mapping[str, TensorRecipe] = {
    **linear("mlp.gate_proj", "ffn_gate"),
    **linear("mlp.up_proj", "ffn_up"),
    **linear("mlp.down_proj", "ffn_down"),
}
NORMS: Mapping[str, TensorRecipe] = in_layers(
    {
        "input_layernorm.weight": "attn_norm.weight",
        "post_attention_layernorm.weight": "ffn_norm.weight",
    }
)
DECODER: Mapping[str, TensorRecipe] = {**OUTER, **ATTENTION, **MLP, **NORMS}


ROTATED: Mapping[str, TensorRecipe] = in_layers(
    {
        f"self_attn.{part}_proj.{kind}": TensorRecipe(
            (f"blk.{{}}.attn_{part}.{kind}",), halves_of_heads
        )
        for part in "qk"
        for kind in ("weight", "bias")
    }
)
GATE_UP_OF_EXPERTS = TensorRecipe(
    ("blk.{}.ffn_gate_exps.weight", "blk.{}.ffn_up_exps.weight"),
    joined_by_expert,
    otherwise=TensorRecipe(("blk.{}.ffn_gate_up_exps.weight",)),
)
EXPERTS: Mapping[str, TensorRecipe] = in_layers(
    {
        "mlp.gate.weight": "ffn_gate_inp.weight",
        "mlp.experts.gate_up_proj": GATE_UP_OF_EXPERTS,
        "mlp.experts.down_proj": "ffn_down_exps.weight",
    }
)


def _end_ids(facts: GGUFFacts) -> int | list[int] | None:
    """The tokens that end an answer."""
    found = [facts.token_id(name) for name in END_TOKENS]
    ids = [*dict.fromkeys(token for token in found if token is not None)]
    return ids if len(ids) > 1 else next(iter(ids), None)

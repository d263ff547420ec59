"""InternLM2 and 2.5 in transformers' form of a Llama: the layers compute the same. Weights have
other names, and the projections of queries, keys and values are one matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming

JOINED = "attention.wqkv"
PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


class SplitByKeyHead(ConversionOps):  # type: ignore[misc]
    """Splits the rows of a joined projection. For each head of keys they are those of the queries
    that attend by it, then its own, then those of its values."""

    @torch.no_grad()
    def convert(
        self,
        input_dict: Mapping[str, Sequence[Tensor]],
        source_patterns: list[str],
        target_patterns: list[str],
        *,
        config: PretrainedConfig,
        **_: Any,
    ) -> dict[str, Tensor]:
        """Returns copies, so that no projection holds the memory of all three.

        Raises ValueError for other rows than the config's heads have.
        """
        ((joined,),) = input_dict.values()
        n_heads, n_key_heads = config.num_attention_heads, config.num_key_value_heads
        head_dim, n_queries = config.head_dim, n_heads // n_key_heads
        n_rows = (n_heads + 2 * n_key_heads) * head_dim
        if len(joined) != n_rows or n_heads % n_key_heads:
            raise ValueError(
                f"{JOINED} has {len(joined)} rows, not the {n_rows} of {n_heads} heads of queries "
                f"and {n_key_heads} of keys and values, of {head_dim} each"
            )
        by_key_head = joined.reshape(n_key_heads, n_queries + 2, head_dim, *joined.shape[1:])
        parts = torch.split(by_key_head, [n_queries, 1, 1], dim=1)
        copies = (part.clone(memory_format=torch.contiguous_format) for part in parts)
        return {
            name: part.flatten(0, 2) for name, part in zip(target_patterns, copies, strict=True)
        }


# Names of fields that a Llama's config has by another one. Its MLPs have no bias either.
FIELDS = {"bias": "attention_bias"}
WEIGHTS = (
    WeightRenaming(r"tok_embeddings\.", "embed_tokens."),
    WeightRenaming(r"^output\.", "lm_head."),
    WeightRenaming(r"\.attention_norm\.", ".input_layernorm."),
    WeightRenaming(r"\.ffn_norm\.", ".post_attention_layernorm."),
    WeightRenaming(r"\.attention\.wo\.", ".self_attn.o_proj."),
    WeightRenaming(r"\.feed_forward\.w1\.", ".mlp.gate_proj."),
    WeightRenaming(r"\.feed_forward\.w3\.", ".mlp.up_proj."),
    WeightRenaming(r"\.feed_forward\.w2\.", ".mlp.down_proj."),
    WeightConverter(JOINED, [*PARTS], [SplitByKeyHead()]),
)

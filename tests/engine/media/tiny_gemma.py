"""Tiny models of Gemma's, in which an image's tokens attend to each other both ways."""

import transformers

from tests.engine.media.tiny_family import N_PATCHES, SIDE, TEXT, TOWER, Family
from tests.media import processors
from tests.media.processors import build

LEAST_GEMMA4 = 70  # tokens that it scales an image up to, at least


GEMMA = {
    "gemma3": Family(
        lambda image_id: transformers.Gemma3Config(
            vision_config=transformers.SiglipVisionConfig(**TOWER),
            text_config=transformers.Gemma3TextConfig(
                **TEXT,
                sliding_window=6,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                query_pre_attn_scalar=8,
                final_logit_softcapping=None,
                tie_word_embeddings=False,
            ),
            image_token_index=image_id,
            mm_tokens_per_image=N_PATCHES,
            tie_word_embeddings=False,
        ),
        lambda: processors.gemma3(SIDE, N_PATCHES),
        "<start_of_image>",
        whole=N_PATCHES,
    ),
    "gemma4": Family(
        lambda image_id: transformers.Gemma4Config(
            vision_config=transformers.Gemma4VisionConfig(
                hidden_size=24,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                head_dim=12,
                position_embedding_size=64,
            ),
            text_config=transformers.Gemma4TextConfig(
                **{**TEXT, "pad_token_id": 0},
                global_head_dim=16,
                sliding_window=6,
                layer_types=["sliding_attention", "full_attention", "full_attention"],
                hidden_size_per_layer_input=8,
                vocab_size_per_layer_input=TEXT["vocab_size"],
                use_bidirectional_attention="vision",
                num_kv_shared_layers=0,
                final_logit_softcapping=None,
                tie_word_embeddings=False,
            ),
            image_token_id=image_id,
            tie_word_embeddings=False,
        ),
        lambda: build(lambda: processors.gemma4(LEAST_GEMMA4)),
        "<|image|>",
        whole=LEAST_GEMMA4,
    ),
}

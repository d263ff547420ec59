"""Tiny models of Gemma's, in which an image's tokens attend to each other both ways."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from tests.engine.media.tiny_family import N_PATCHES, PATCH, SIDE, TEXT, TOWER, VOCABULARY, Family
from tests.media import processors
from tests.media.processors import build

LEAST_GEMMA4 = 70  # tokens that it scales an image up to, at least
SOUND_IDS = 12  # more than a second has


class Patches(transformers.PreTrainedModel):  # type: ignore[misc]
    """A stand-in for Gemma 3n's tower of images, which needs timm."""

    config_class = transformers.Gemma3nVisionConfig
    _supports_sdpa = True

    def __init__(self, config: transformers.Gemma3nVisionConfig) -> None:
        super().__init__(config)
        self.vision = nn.Conv2d(3, config.hidden_size, PATCH, PATCH)
        self.post_init()

    def forward(self, pixel_values: Tensor, **_: object) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=torch.tanh(self.vision(pixel_values)))


transformers.AutoModel.register(transformers.Gemma3nVisionConfig, Patches, exist_ok=True)


def gemma3n(image_id: int) -> transformers.Gemma3nConfig:
    """Ids as the processor has them: an image's begin with one before the placeholder."""
    text: Any = {**TEXT, "num_hidden_layers": 4, "pad_token_id": 0}
    first = image_id - 1
    return transformers.Gemma3nConfig(
        text_config=transformers.Gemma3nTextConfig(
            **text,
            vocab_size_per_layer_input=first,
            hidden_size_per_layer_input=8,
            laurel_rank=4,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention"] * 2,
            num_kv_shared_layers=2,
            activation_sparsity_pattern=[0.0] * 4,
            tie_word_embeddings=False,
        ),
        vision_config=transformers.Gemma3nVisionConfig(
            hidden_size=24, vocab_offset=first, vocab_size=2
        ),
        audio_config=transformers.Gemma3nAudioConfig(
            hidden_size=32,
            vocab_offset=image_id + 1,
            vocab_size=VOCABULARY - image_id - 1,
            conf_attention_chunk_size=4,
            conf_attention_context_left=5,
            conf_num_attention_heads=2,
            conf_num_hidden_layers=1,
            sscp_conv_channel_size=(4, 4),
        ),
        image_token_id=image_id,
        audio_token_id=image_id + 2,
        vision_soft_tokens_per_image=N_PATCHES,
        audio_soft_tokens_per_image=SOUND_IDS,
        tie_word_embeddings=False,
    )


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
    "gemma3n": Family(
        gemma3n,
        lambda: processors.gemma3n(SIDE, image_seq_length=N_PATCHES, audio_seq_length=SOUND_IDS),
        "<image_soft_token>",
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

"""Configs of tiny models that see, and their processors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import transformers
from transformers import PretrainedConfig

from tests.media.processors import BOXES, build, pixtral, tokenizer
from tests.models import SIZES

TEXT = {**SIZES, "vocab_size": 512}
SIDE, PATCH = 32, 8
TOWER = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
}
SQUARE = {"height": SIDE, "width": SIDE}
PINPOINTS = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]]
N_PATCHES = (SIDE // PATCH) ** 2
LEAST_GEMMA4 = 70  # tokens that it scales an image up to, at least


@dataclass(frozen=True)
class Family:
    """What transformers needs for a model: `config` gets the id of the placeholder. `mark` stands
    for an image in a text. `whole` is how many tokens of an image one step has to compute."""

    config: Callable[[int], PretrainedConfig]
    processor: Callable[[], Any]
    mark: str = "<image>"
    whole: int = 1


def gemma3() -> Any:
    return transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessorPil(size=SQUARE),
        tokenizer(
            boi_token="<start_of_image>",
            eoi_token="<end_of_image>",
            image_token="<image_soft_token>",
        ),
        image_seq_length=N_PATCHES,
    )


def gemma4() -> Any:
    return transformers.Gemma4Processor(
        None,
        transformers.Gemma4ImageProcessorPil(max_soft_tokens=LEAST_GEMMA4),
        tokenizer(
            boi_token="<|image>",
            eoi_token="<image|>",
            image_token="<|image|>",
            boa_token="<|audio>",
            eoa_token="<audio|>",
            audio_token="<|audio|>",
        ),
        None,
    )


def llava(*tokens: str) -> Any:
    """`tokens` are special ones besides its own."""
    return transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(size=SQUARE, crop_size=SQUARE, do_center_crop=False),
        tokenizer(*tokens, image_token="<image>"),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def llava_next() -> Any:
    return transformers.LlavaNextProcessor(
        transformers.LlavaNextImageProcessorPil(
            size={"shortest_edge": SIDE}, crop_size=SQUARE, image_grid_pinpoints=PINPOINTS
        ),
        tokenizer(image_token="<image>"),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def onevision() -> Any:
    return transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessorPil(size=SQUARE, image_grid_pinpoints=PINPOINTS),
        tokenizer(image_token="<image>", video_token="<video>"),
        None,
        num_image_tokens=N_PATCHES,
        vision_feature_select_strategy="full",
    )


def idefics3() -> Any:
    return transformers.Idefics3Processor(
        transformers.Idefics3ImageProcessorPil(
            size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE}
        ),
        tokenizer("<image>", "<fake_token_around_image>", "<global-img>", *BOXES),
        image_seq_len=N_PATCHES // 4,
    )


def internvl() -> Any:
    return transformers.InternVLProcessor(
        transformers.GotOcr2ImageProcessorPil(size=SQUARE),
        tokenizer(
            start_image_token="<img>",
            end_image_token="</img>",
            context_image_token="<IMG_CONTEXT>",
            video_token="<video>",
        ),
        None,
        image_seq_length=N_PATCHES // 4,
    )


FAMILIES = {
    "llava": Family(
        lambda image_id: transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(**TOWER),
            text_config=transformers.LlamaConfig(**TEXT),
            image_token_index=image_id,
            vision_feature_layer=-1,
        ),
        llava,
    ),
    "llava_next": Family(
        lambda image_id: transformers.LlavaNextConfig(
            vision_config=transformers.CLIPVisionConfig(**TOWER),
            text_config=transformers.MistralConfig(**TEXT, sliding_window=None),
            image_token_index=image_id,
            image_grid_pinpoints=PINPOINTS,
            vision_feature_layer=-1,
        ),
        llava_next,
    ),
    "llava_onevision": Family(
        lambda image_id: transformers.LlavaOnevisionConfig(
            vision_config=transformers.SiglipVisionConfig(**TOWER),
            text_config=transformers.Qwen2Config(**TEXT),
            image_token_index=image_id,
            video_token_index=image_id + 1,
            image_grid_pinpoints=PINPOINTS,
            vision_feature_layer=-1,
            vision_feature_select_strategy="full",
        ),
        lambda: build(onevision),
    ),
    "mistral3": Family(
        lambda image_id: transformers.Mistral3Config(
            vision_config=transformers.PixtralVisionConfig(
                **{**TOWER, "image_size": 640, "patch_size": 16, "hidden_size": 32}
            ),
            text_config=transformers.MistralConfig(**TEXT, sliding_window=None),
            image_token_index=image_id,
            spatial_merge_size=2,
            vision_feature_layer=-1,
        ),
        lambda: build(lambda: pixtral(2)),
        "[IMG]",
    ),
    "idefics3": Family(
        lambda image_id: transformers.Idefics3Config(
            vision_config=TOWER,
            text_config=transformers.LlamaConfig(**TEXT),
            image_token_id=image_id,
            scale_factor=2,
        ),
        idefics3,
    ),
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
        gemma3,
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
        lambda: build(gemma4),
        "<|image|>",
        whole=LEAST_GEMMA4,
    ),
    "internvl": Family(
        lambda image_id: transformers.InternVLConfig(
            vision_config=transformers.InternVLVisionConfig(
                **{**TOWER, "image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]}
            ),
            text_config=transformers.Qwen2Config(**TEXT),
            image_token_id=image_id,
            image_seq_length=N_PATCHES // 4,
        ),
        lambda: build(internvl),
        "<IMG_CONTEXT>",
    ),
}

"""Configs of tiny models that see, and their processors."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import transformers
from PIL import Image
from transformers import PretrainedConfig

from tests.engine.media.tiny_family import (
    N_PATCHES,
    PATCH,
    PINPOINTS,
    SIDE,
    SQUARE,
    TEXT,
    TOWER,
    Family,
)
from tests.engine.media.tiny_gemma import GEMMA
from tests.media import processors
from tests.media.processors import BOXES, build, pixtral, tokenizer

SOUND_SECONDS = 2
SOUND_TOWER = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "num_mel_bins": 128,
    "max_source_positions": SOUND_SECONDS * 50,
}


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


def voxtral() -> Any:
    processor = processors.voxtral(seconds=SOUND_SECONDS)
    processor.audio_token_id = processor.tokenizer.convert_tokens_to_ids("[AUDIO]")
    return processor


QWEN_ROPE: dict[str, Any] = {
    "rope_type": "default",
    "rope_theta": 10.0,
    "mrope_section": [2, 1, 1],
}


def qwen_text(config: Any, **others: Any) -> PretrainedConfig:
    """Makes the config of a language model with frequencies that tell lines from columns."""
    return config(**TEXT, rope_parameters=QWEN_ROPE, **others)


def qwen(name: str, text: Callable[[], PretrainedConfig], **tower: Any) -> Family:
    """`tower`: besides what all of Qwen's have."""
    whole: Any = getattr(transformers, f"{name}Config")
    sizes = {"depth": 2, "num_heads": 2, "patch_size": PATCH, **tower}
    pixels = {"shortest_edge": 4 * (2 * PATCH) ** 2, "longest_edge": 12 * (2 * PATCH) ** 2}
    processor = {"Qwen2VL": "Qwen2VL", "Qwen2_5_VL": "Qwen2_5_VL"}.get(name, "Qwen3VL")
    return Family(
        lambda image_id: whole(vision_config=sizes, text_config=text(), image_token_id=image_id),
        lambda: build(lambda: processors.qwen(f"{processor}Processor", PATCH, pixels)),
        "<|image_pad|>",
    )


QWEN3_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "out_hidden_size": TEXT["hidden_size"],
    "num_position_embeddings": 16,
}


class Tiles:
    """A stand-in for Llama 4's image processor, which needs torchvision.

    It makes the tiles of a canvas, and the whole image.
    """

    model_input_names = ("pixel_values",)
    max_patches = 4
    resize_to_max_canvas = False
    size: ClassVar[dict[str, int]] = SQUARE

    def fetch_images(self, images: Sequence[Image.Image]) -> Sequence[Image.Image]:
        return images

    def __call__(self, images: Sequence[Image.Image], **_: object) -> dict[str, Any]:
        tiles, ratios = [], []
        for image in images:
            rows, columns = processors.llama4_canvas(self, *image.size)
            pixels = np.array(image.resize((columns * SIDE, rows * SIDE)), dtype=np.float32) / 255
            cut = pixels.reshape(rows, SIDE, columns, SIDE, 3).transpose(0, 2, 4, 1, 3)
            tiles.append(cut.reshape(-1, 3, SIDE, SIDE))
            ratios.append((rows, columns))
            if rows * columns > 1:
                whole = np.array(image.resize((SIDE, SIDE)), dtype=np.float32) / 255
                tiles.append(whole.transpose(2, 0, 1)[None])
        return {"pixel_values": torch.from_numpy(np.concatenate(tiles)), "aspect_ratios": ratios}


def llama4() -> Any:
    return build(lambda: processors.llama4(image_processor=Tiles(), patch_size=PATCH))


FAMILIES = {
    "llama4": Family(
        lambda image_id: transformers.Llama4Config(
            vision_config=transformers.Llama4VisionConfig(
                **{**TOWER, "hidden_size": 32, "intermediate_size": 128},
                projector_input_dim=64,
                projector_output_dim=64,
                vision_output_dim=64,
            ),
            text_config=transformers.Llama4TextConfig(
                **{**TEXT, "num_hidden_layers": 4},
                attention_chunk_size=32,
                num_local_experts=4,
                intermediate_size_mlp=64,
            ),
            image_token_index=image_id,
        ),
        llama4,
        "<|image|>",
    ),
    "qwen3_5": qwen(
        "Qwen3_5",
        lambda: transformers.Qwen3_5TextConfig(
            **{**TEXT, "num_hidden_layers": 4},
            rope_parameters={**QWEN_ROPE, "partial_rotary_factor": 1.0},
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=2,
        ),
        **QWEN3_TOWER,
    ),
    "qwen2_audio": Family(
        lambda audio_id: transformers.Qwen2AudioConfig(
            audio_config={**SOUND_TOWER, "model_type": "qwen2_audio_encoder"},
            text_config=transformers.Qwen2Config(**TEXT),
            audio_token_index=audio_id,
        ),
        lambda: processors.qwen2_audio(seconds=SOUND_SECONDS),
        "<|AUDIO|>",
    ),
    "voxtral": Family(
        lambda audio_id: transformers.VoxtralConfig(
            audio_config=transformers.VoxtralEncoderConfig(**SOUND_TOWER),
            text_config=transformers.LlamaConfig(**TEXT),
            audio_token_id=audio_id,
        ),
        voxtral,
        "[AUDIO]",
    ),
    "qwen2_vl": qwen(
        "Qwen2VL",
        lambda: qwen_text(transformers.Qwen2VLTextConfig),
        embed_dim=32,
        hidden_size=TEXT["hidden_size"],
        mlp_ratio=2,
    ),
    "qwen2_5_vl": qwen(
        "Qwen2_5_VL",
        lambda: qwen_text(transformers.Qwen2_5_VLTextConfig),
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=TEXT["hidden_size"],
        window_size=4 * PATCH,
        fullatt_block_indexes=[1],
    ),
    "qwen3_vl": qwen(
        "Qwen3VL",
        lambda: qwen_text(transformers.Qwen3VLTextConfig),
        **QWEN3_TOWER,
        deepstack_visual_indexes=[0, 1],
    ),
    "qwen3_vl_moe": qwen(
        "Qwen3VLMoe",
        lambda: qwen_text(
            transformers.Qwen3VLMoeTextConfig,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
        ),
        **QWEN3_TOWER,
        deepstack_visual_indexes=[0, 1],
    ),
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
    "smolvlm": Family(
        lambda image_id: transformers.SmolVLMConfig(
            vision_config=TOWER,
            text_config=transformers.LlamaConfig(**TEXT),
            image_token_id=image_id,
            scale_factor=2,
        ),
        lambda: build(lambda: processors.smolvlm(SIDE, 2, N_PATCHES // 4)),
    ),
    **GEMMA,
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

"""The table of rules: for each processor of transformers' that is known, a function that reads its
attributes, which have no common interface.
"""

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any, TypedDict

from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.media.audio_rules import FixedAudioRules, PooledAudioRules, WindowAudioRules
from deployments.media.image_rules import (
    FixedImageRules,
    MergedPatchImageRules,
    PooledImageRules,
    RowImageRules,
)
from deployments.media.tile_rules import (
    Idefics3ImageRules,
    InternVLImageRules,
    Llama4ImageRules,
    LlavaNextImageRules,
    OnevisionImageRules,
)

Described = Any  # a processor: each family's has attributes of its own

MAX_GEMMA3N_AUDIO_S = 30  # what is longer, the feature extractor would cut off
VOXTRAL_FRAMES = 8  # of one id: a convolution halves their number, and four become one
VOXTRAL_BEGIN = "[BEGIN_AUDIO]"
VOXTRAL_TRANSCRIPT = "<s>[INST]{sound}[/INST]{language}[TRANSCRIBE]"


class KindFields(TypedDict):
    """The fields of `KindRules`."""

    marker: str
    placeholder: str
    placeholder_id: int
    framed: str


class UnknownProcessorError(ValueError):
    """The sizes of a processor are not known from its attributes."""


def image_fields(processor: Described, framed: str = "") -> KindFields:
    """Returns the fields of a family whose template writes the placeholder itself."""
    token: str = processor.image_token
    return kind_fields(token, token, processor.image_token_id, framed)


def audio_fields(processor: Described, framed: str = "") -> KindFields:
    token: str = processor.audio_token
    return kind_fields(token, token, processor.audio_token_id, framed)


def kind_fields(marker: str, placeholder: str, placeholder_id: int, framed: str = "") -> KindFields:
    return {
        "marker": marker,
        "placeholder": placeholder,
        "placeholder_id": placeholder_id,
        "framed": framed or marker,
    }


def fixed_size(image_processor: Described) -> tuple[int, int]:
    """The height and width that every image has in the end. Raises UnknownProcessorError."""
    crop, size = getattr(image_processor, "crop_size", None), image_processor.size
    if getattr(image_processor, "do_center_crop", None) and crop:
        return crop["height"], crop["width"]
    if edge_of(size, "height"):
        return size["height"], size["width"]
    if getattr(image_processor, "do_pad", None) and edge_of(size, "shortest_edge"):
        return size["shortest_edge"], size["shortest_edge"]
    raise UnknownProcessorError("its images keep their proportions")


def edge_of(size: Described, name: str) -> int | None:
    """A field of a processor's `size`, where it has one."""
    return dict(size).get(name)


def n_selected(processor: Described) -> int:
    """Ids that the vision tower has beside its patches, less those that the model drops."""
    dropped = int(processor.vision_feature_select_strategy == "default")
    return int(processor.num_additional_image_tokens) - dropped


def llava_rules(processor: Described) -> MediaRules:
    height, width = fixed_size(processor.image_processor)
    patch = processor.patch_size
    n_ids = (height // patch) * (width // patch) + n_selected(processor)
    is_cropped = edge_of(processor.image_processor.size, "shortest_edge") is not None
    return MediaRules(
        images=FixedImageRules(**image_fields(processor), n_ids=n_ids, is_cropped=is_cropped)
    )


def llava_next_rules(processor: Described) -> MediaRules:
    image_processor, patch = processor.image_processor, processor.patch_size
    height, width = _tile(image_processor)
    rows, columns = height // patch, width // patch
    return MediaRules(
        images=LlavaNextImageRules(
            **image_fields(processor),
            tile_height=height,
            tile_width=width,
            rows=rows,
            columns=columns,
            n_whole=rows * columns,
            canvases=_pinpoints(image_processor),
            n_selected=n_selected(processor),
        )
    )


def llava_onevision_rules(processor: Described) -> MediaRules:
    image_processor, n_whole = processor.image_processor, processor.num_image_tokens
    height, width = _tile(image_processor)
    side = isqrt(n_whole)
    return MediaRules(
        images=OnevisionImageRules(
            **image_fields(processor),
            tile_height=height,
            tile_width=width,
            rows=side,
            columns=side,
            n_whole=n_whole,
            canvases=_pinpoints(image_processor),
            n_selected=-int(processor.vision_feature_select_strategy == "default"),
            max_tiles=_max_tiles(processor.vision_aspect_ratio),
        )
    )


def _max_tiles(name: str) -> int:
    """9 of `anyres_max_9`."""
    number = name.removeprefix("anyres_max_")
    if not number.isdecimal():
        raise UnknownProcessorError(f"vision_aspect_ratio is {name!r}")
    return int(number)


def _tile(image_processor: Described) -> tuple[int, int]:
    edge = edge_of(image_processor.size, "shortest_edge")
    is_cropped = getattr(image_processor, "do_center_crop", None)
    return (edge, edge) if edge and not is_cropped else fixed_size(image_processor)


def _pinpoints(image_processor: Described) -> tuple[tuple[int, int], ...]:
    return tuple((height, width) for height, width in image_processor.image_grid_pinpoints)


def pixtral_rules(processor: Described) -> MediaRules:
    size = processor.image_processor.size
    edge = edge_of(size, "longest_edge")
    return MediaRules(
        images=RowImageRules(
            **image_fields(processor),
            square=processor.patch_size * processor.spatial_merge_size,
            max_height=edge or size["height"],
            max_width=edge or size["width"],
            row_end=processor.image_break_token,
            end=processor.image_end_token,
        )
    )


def idefics3_rules(processor: Described) -> MediaRules:
    image_processor = processor.image_processor
    long_side = edge_of(image_processor.size, "longest_edge")
    return MediaRules(
        images=Idefics3ImageRules(
            **image_fields(processor),
            side=image_processor.max_image_size["longest_edge"],
            long_side=long_side if image_processor.do_resize else None,
            is_cut=bool(image_processor.do_image_splitting),
            n_frame=processor.image_seq_len,
            fake=processor.fake_image_token,
            whole=getattr(processor, "global_image_tag", None) or processor.global_image_token,
        )
    )


def internvl_rules(processor: Described) -> MediaRules:
    image_processor = processor.image_processor
    fewest, most = image_processor.min_patches, image_processor.max_patches
    return MediaRules(
        images=InternVLImageRules(
            **image_fields(processor),
            tile_height=image_processor.size["height"],
            tile_width=image_processor.size["width"],
            canvases=_canvases_by_size(fewest, most) if most > 1 else (),
            n_tile=processor.image_seq_length,
            before=processor.start_image_token,
            after=processor.end_image_token,
        )
    )


def _canvases_by_size(fewest: int, most: int) -> tuple[tuple[int, int], ...]:
    sides = range(1, most + 1)
    found = ((columns, rows) for columns in sides for rows in sides)
    fitting = (canvas for canvas in found if fewest <= canvas[0] * canvas[1] <= most)
    return tuple(sorted(fitting, key=lambda canvas: canvas[0] * canvas[1]))


def qwen_vl_rules(processor: Described) -> MediaRules:
    image_processor, token = processor.image_processor, processor.image_token
    return MediaRules(
        images=MergedPatchImageRules(
            **image_fields(processor, f"<|vision_start|>{token}<|vision_end|>"),
            square=image_processor.patch_size * image_processor.merge_size,
            min_pixels=image_processor.size["shortest_edge"],
            max_pixels=image_processor.size["longest_edge"],
        )
    )


def llama4_rules(processor: Described) -> MediaRules:
    image_processor, tokenizer = processor.image_processor, processor.tokenizer
    placeholder: str = processor.img_patch_token
    side: int = image_processor.size["height"]
    n_patches = (side // processor.patch_size) ** 2
    return MediaRules(
        images=Llama4ImageRules(
            **kind_fields(
                processor.image_token, placeholder, tokenizer.convert_tokens_to_ids(placeholder)
            ),
            side=side,
            canvases=_canvases_by_ratio(image_processor.max_patches),
            n_tile=n_patches // processor.downsample_ratio,
            takes_largest=bool(image_processor.resize_to_max_canvas),
        )
    )


def _canvases_by_ratio(most: int) -> tuple[tuple[int, int], ...]:
    """Returns the canvases of up to `most` tiles.

    Those of one ratio stand together, and the ratios in the order in which they first occur.
    """
    by_ratio: dict[float, list[tuple[int, int]]] = {}
    for tiles in range(most, 0, -1):
        for rows in (divisor for divisor in range(1, tiles + 1) if tiles % divisor == 0):
            columns = tiles // rows
            by_ratio.setdefault(rows / columns, []).append((rows, columns))
    return tuple(canvas for canvases in by_ratio.values() for canvas in canvases)


def gemma3_rules(processor: Described) -> MediaRules:
    """The template writes the token that begins an image."""
    return MediaRules(images=_gemma3_images(processor, processor.boi_token))


def gemma3n_rules(processor: Described) -> MediaRules:
    tokenizer, extractor = processor.tokenizer, processor.feature_extractor
    audio = FixedAudioRules(
        **audio_fields(processor),
        sampling_rate=extractor.sampling_rate,
        max_samples=MAX_GEMMA3N_AUDIO_S * extractor.sampling_rate,
        n_ids=processor.audio_seq_length,
        before=f"\n\n{processor.boa_token}",
        after=f"{tokenizer.eoa_token}\n\n",
    )
    return MediaRules(images=_gemma3_images(processor, processor.image_token), audio=audio)


def _gemma3_images(processor: Described, marker: str) -> FixedImageRules:
    tokenizer = processor.tokenizer
    return FixedImageRules(
        **kind_fields(marker, tokenizer.image_token, tokenizer.image_token_id),
        n_ids=processor.image_seq_length,
        before=f"\n\n{tokenizer.boi_token}",
        after=f"{tokenizer.eoi_token}\n\n",
    )


def gemma4_rules(processor: Described) -> MediaRules:
    image_processor = processor.image_processor
    return MediaRules(
        images=PooledImageRules(
            **image_fields(processor),
            square=image_processor.patch_size * image_processor.pooling_kernel_size,
            max_ids=image_processor.max_soft_tokens,
            before=processor.boi_token,
            after=processor.eoi_token,
        )
    )


def qwen2_audio_rules(processor: Described) -> MediaRules:
    extractor, token = processor.feature_extractor, processor.audio_token
    framed = f"{processor.audio_bos_token}{token}{processor.audio_eos_token}"
    return MediaRules(
        audio=PooledAudioRules(
            **audio_fields(processor, framed),
            sampling_rate=extractor.sampling_rate,
            max_samples=extractor.n_samples,  # what is longer, the extractor would cut off
            hop_length=extractor.hop_length,
        )
    )


def voxtral_rules(processor: Described) -> MediaRules:
    extractor = processor.feature_extractor
    return MediaRules(
        audio=WindowAudioRules(
            **audio_fields(processor, VOXTRAL_BEGIN + processor.audio_token),
            sampling_rate=extractor.sampling_rate,
            max_samples=None,
            transcript_form=VOXTRAL_TRANSCRIPT,
            window=extractor.n_samples,
            n_window=extractor.nb_max_frames // VOXTRAL_FRAMES,
        )
    )


IMAGES, AUDIO = (MediaKind.IMAGE,), (MediaKind.AUDIO,)
# By the names of transformers' processors: what reads the rules of such a one, and the kinds of
# media that models with it take, if they have towers. Gemma 4's has sounds too, which its family
# does not encode.
RULES: Mapping[str, tuple[Callable[[Described], MediaRules], tuple[MediaKind, ...]]] = {
    "Gemma3Processor": (gemma3_rules, IMAGES),
    "Gemma3nProcessor": (gemma3n_rules, IMAGES + AUDIO),
    "Gemma4Processor": (gemma4_rules, IMAGES),
    "Idefics3Processor": (idefics3_rules, IMAGES),
    "InternVLProcessor": (internvl_rules, IMAGES),
    "Llama4Processor": (llama4_rules, IMAGES),
    "LlavaNextProcessor": (llava_next_rules, IMAGES),
    "LlavaOnevisionProcessor": (llava_onevision_rules, IMAGES),
    "LlavaProcessor": (llava_rules, IMAGES),
    "PixtralProcessor": (pixtral_rules, IMAGES),
    "Qwen2AudioProcessor": (qwen2_audio_rules, AUDIO),
    "Qwen2VLProcessor": (qwen_vl_rules, IMAGES),
    "Qwen2_5_VLProcessor": (qwen_vl_rules, IMAGES),
    "Qwen3VLProcessor": (qwen_vl_rules, IMAGES),
    "SmolVLMProcessor": (idefics3_rules, IMAGES),
    "VoxtralProcessor": (voxtral_rules, AUDIO),
}


def kinds_of(name: str) -> tuple[MediaKind, ...]:
    """Kinds of media that models with a processor of this class take; none: it is not known."""
    return RULES[name][1] if name in RULES else ()


def processor_of(model_type: str) -> str | None:
    """The class that most models of a type have, whose files need not name it. None: not known."""
    wanted = f"{model_type}processor".replace("_", "")
    return next((name for name in RULES if name.lower().replace("_", "") == wanted), None)


def rules_of(processor: Described) -> MediaRules | None:
    """None for a processor that is not known. Raises UnknownProcessorError."""
    name = type(processor).__name__
    return RULES[name][0](processor) if name in RULES else None

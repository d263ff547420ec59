"""The table of encoders: for each model of transformers' that sees or hears, the parts in which its
towers differ from others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES

from deployments.media.rules import Described

Module = Any  # a torch module whose submodules are read by name, which its type does not declare
Inputs = Mapping[str, Tensor]  # of an image, or of a sound or a part of one
Vectors = Callable[[Module, Inputs], Tensor]


class Bidirectional(Enum):
    """The layers in which ids of one image attend to each other both ways."""

    NOWHERE = auto()
    IN_WINDOWS = auto()  # in those with a window alone
    EVERYWHERE = auto()


def image_features(*names: str) -> Vectors:
    """Returns a function that makes vectors by transformers' `get_image_features`.

    That one gets the inputs of these names.
    """

    def image_vectors(base: Module, inputs: Inputs) -> Tensor:
        given = {name: inputs[name] for name in names if name in inputs}
        return torch.cat([*base.get_image_features(**given).pooler_output])

    return image_vectors


_PIXELS = image_features("pixel_values")
_SIZED = image_features("pixel_values", "image_sizes")
_MASKED = image_features("pixel_values", "pixel_attention_mask")
_GRID = image_features("pixel_values", "image_grid_thw")


def _none(processor: Described) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class MediaFamily:
    """Towers that make vectors of images and sounds, in front of a language model that takes them
    as those of tokens.

    class_name: of transformers' model. Its module is imported where one is loaded.
    image_vectors: base of the model, inputs of one image -> [ids of the image, hidden]
    options: of its image processor, which its processor sets by itself.
    language: the name of the module in its base that is the language model without its head.
    text_class: of a model of transformers' whose layers compute the same as those of the language
        model, where there is none of the language model itself.
    sound_vectors: base of the model, inputs of one part of a sound -> [its ids, hidden]
    sound_options: as `options`, of its feature extractor.
    sound_window: frames of the parts of a sound that are encoded one by one.
    embedding: base, ids [...], what the language model embeds them as [..., hidden] -> the same,
        with those ids that the towers embed.
    bidirectional: where the ids of an image attend to each other both ways, by the model's config.
    """

    class_name: str
    image_vectors: Vectors | None = None
    options: Callable[[Described], Mapping[str, object]] = _none
    language: str = "language_model"
    text_class: str = ""
    sound_vectors: Vectors | None = None
    sound_options: Callable[[Described], Mapping[str, object]] = _none
    sound_window: Callable[[Described], int] | None = None
    embedding: Callable[[Module, Tensor, Tensor], Tensor] | None = None
    bidirectional: Callable[[Described], Bidirectional] = lambda _: Bidirectional.NOWHERE


def mistral3_vectors(base: Module, inputs: Inputs) -> Tensor:
    """transformers takes one vector alone for none, so that an image of one is computed twice."""
    square = base.vision_tower.patch_size * base.config.spatial_merge_size
    if int((inputs["image_sizes"] // square).prod()) > 1:
        return _SIZED(base, inputs)
    return _SIZED(base, {name: torch.cat([value, value]) for name, value in inputs.items()})[:1]


def mistral3_options(processor: Described) -> Mapping[str, object]:
    return {"patch_size": processor.patch_size * processor.spatial_merge_size}


def llama4_vectors(base: Module, inputs: Inputs) -> Tensor:
    """Llama 4's projector is no part of `get_image_features`."""
    states = base.get_image_features(inputs["pixel_values"], return_dict=True).last_hidden_state
    vectors: Tensor = base.multi_modal_projector(states.flatten(0, -2))
    return vectors


def deepstack_vectors(base: Module, inputs: Inputs) -> Tensor:
    """[ids of the image, hidden * (1 + layers)]: from Qwen 3 VL on the first layers add more."""
    found = base.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    parts = found.pooler_output, *found.deepstack_features
    return torch.cat([torch.cat([*part]) for part in parts], -1)


def padded_sound(base: Module, inputs: Inputs) -> Tensor:
    """Gemma 3n's, as `Gemma3nModel.forward` makes them: silence, which the last id of all stands
    for, is behind a sound.
    """
    heard = base.get_audio_features(inputs["input_features"], ~inputs["input_features_mask"])
    found: Tensor = heard.pooler_output[0]
    last = torch.tensor([base.vocab_size - 1], device=found.device)
    silence: Tensor = base.embed_audio(input_ids=last)
    vectors = torch.where(heard.audio_mel_mask[0, :, None], silence, found)
    n_missing = base.config.audio_soft_tokens_per_image - len(vectors)
    return torch.cat([vectors, silence.expand(n_missing, -1)])


def embedded_by_towers(base: Module, ids: Tensor, embedded: Tensor) -> Tensor:
    """Gemma 3n's ids behind those of texts are of images, and those behind these are of sounds."""
    vision, audio = base.embed_vision, base.embed_audio
    ends = ((vision, audio.vocab_offset), (audio, base.vocab_size))
    for embedder, end in ends:
        is_its = (ids >= embedder.vocab_offset) & (ids < end)
        its: Tensor = embedder(input_ids=torch.where(is_its, ids, embedder.vocab_offset))
        embedded = torch.where(is_its[..., None], its.to(embedded.dtype), embedded)
    return embedded


def gemma4_bidirectional(config: Described) -> Bidirectional:
    """Vectors of an image attend to each other in the larger models, where there is a window."""
    is_vision = config.text_config.use_bidirectional_attention == "vision"
    return Bidirectional.IN_WINDOWS if is_vision else Bidirectional.NOWHERE


def padded(processor: Described) -> Mapping[str, object]:
    return {"padding": "max_length", "return_attention_mask": True}


def in_windows(processor: Described) -> Mapping[str, object]:
    n_samples = processor.feature_extractor.n_samples
    return {"padding": True, "truncation": False, "pad_to_multiple_of": n_samples}


def masked_vectors(base: Module, inputs: Inputs) -> Tensor:
    """Makes the vectors as Qwen2-Audio's forward pass does, which has no function for it."""
    tower, features = base.audio_tower, inputs["input_features"]
    n_pairs, n_vectors = tower._get_feat_extract_output_lengths(inputs["attention_mask"].sum(-1))
    # Pairs of frames, of which the first convolution makes one.
    pairs = torch.arange((features.shape[-1] - 2) // 2 + 1, device=features.device)
    mask = create_bidirectional_mask(
        config=tower.config,
        inputs_embeds=features.new_zeros(1, len(pairs), 1),
        attention_mask=(pairs < n_pairs).long()[None],
    )
    states = tower(features, attention_mask=mask).last_hidden_state
    vectors: Tensor = base.multi_modal_projector(states)[0, : int(n_vectors)]
    return vectors


def window_vectors(base: Module, inputs: Inputs) -> Tensor:
    vectors: Tensor = base.get_audio_features(inputs["input_features"]).pooler_output
    return vectors


def n_window_frames(processor: Described) -> int:
    n_frames: int = processor.feature_extractor.nb_max_frames
    return n_frames


_FAMILIES = (
    # A tower, a projector, and a vector for each patch; also Pixtral in LLaVA's form.
    MediaFamily("LlavaForConditionalGeneration", _SIZED),
    # The whole image, and tiles of it with a vector for each line end.
    MediaFamily("LlavaNextForConditionalGeneration", _SIZED),
    MediaFamily("LlavaOnevisionForConditionalGeneration", _SIZED),
    # Pixtral's tower, whose images keep their proportions.
    MediaFamily("Mistral3ForConditionalGeneration", mistral3_vectors, mistral3_options),
    # Tiles, and the whole image behind them.
    MediaFamily("Idefics3ForConditionalGeneration", _MASKED, language="text_model"),
    MediaFamily("SmolVLMForConditionalGeneration", _MASKED, language="text_model"),
    MediaFamily("Llama4ForConditionalGeneration", llama4_vectors),
    # Tiles of one size, each of as many vectors.
    MediaFamily(
        "InternVLForConditionalGeneration", _PIXELS, options=lambda _: {"crop_to_patches": True}
    ),
    # Positions by line and column, and layers as those of Qwen's text models.
    MediaFamily("Qwen2VLForConditionalGeneration", _GRID, text_class="Qwen2ForCausalLM"),
    MediaFamily("Qwen2_5_VLForConditionalGeneration", _GRID, text_class="Qwen2ForCausalLM"),
    MediaFamily(
        "Qwen3VLForConditionalGeneration", deepstack_vectors, text_class="Qwen3ForCausalLM"
    ),
    MediaFamily(
        "Qwen3VLMoeForConditionalGeneration", deepstack_vectors, text_class="Qwen3MoeForCausalLM"
    ),
    MediaFamily("Qwen3_5ForConditionalGeneration", _GRID),
    MediaFamily("Qwen3_5MoeForConditionalGeneration", _GRID),
    # Every image has as many vectors, which attend to each other both ways.
    MediaFamily(
        "Gemma3ForConditionalGeneration",
        _PIXELS,
        bidirectional=lambda _: Bidirectional.EVERYWHERE,
    ),
    # Sounds of one length, and ids that its towers embed. Its tower of images needs timm.
    MediaFamily(
        "Gemma3nForConditionalGeneration",
        _PIXELS,
        sound_vectors=padded_sound,
        embedding=embedded_by_towers,
    ),
    # Images keep their proportions.
    MediaFamily(
        "Gemma4ForConditionalGeneration",
        image_features("pixel_values", "image_position_ids"),
        bidirectional=gemma4_bidirectional,
    ),
    # Whisper's encoder, and that in windows.
    MediaFamily(
        "Qwen2AudioForConditionalGeneration", sound_vectors=masked_vectors, sound_options=padded
    ),
    MediaFamily(
        "VoxtralForConditionalGeneration",
        sound_vectors=window_vectors,
        sound_options=in_windows,
        sound_window=n_window_frames,
    ),
)
# By the names of transformers' models.
ENCODERS = {family.class_name: family for family in _FAMILIES}


def media_family_of(model: PreTrainedModel) -> MediaFamily | None:
    """The family of a model; None: it reads text, or is not known."""
    return ENCODERS.get(type(model).__name__)


def takes_media(config: PretrainedConfig) -> bool:
    """Whether models with such a config are of a family that sees or hears. Files may have the
    language model of one alone, and name it."""
    name = MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.get(config.model_type)
    named = getattr(config, "architectures", None)
    return name in ENCODERS and (not named or name in named)

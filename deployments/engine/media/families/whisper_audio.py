"""Models that hear through Whisper's encoder: Qwen2-Audio, and Voxtral in windows."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers.masking_utils import create_bidirectional_mask

from deployments.engine.media.families.family import Inputs, MediaFamily, Module
from deployments.media.families.described import Described


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


QWEN2_AUDIO = MediaFamily(
    "Qwen2AudioForConditionalGeneration", sound_vectors=masked_vectors, sound_options=padded
)
VOXTRAL = MediaFamily(
    "VoxtralForConditionalGeneration",
    sound_vectors=window_vectors,
    sound_options=in_windows,
    sound_window=n_window_frames,
)

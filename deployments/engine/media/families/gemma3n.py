"""Gemma 3n: sounds of one length, silence behind them, and ids that its towers embed.

As `Gemma3nModel.forward` of transformers makes them. Its tower of images needs the package timm.
"""

import torch
from torch import Tensor

from deployments.engine.media.families.family import Inputs, MediaFamily, Module, image_features


def padded_sound(base: Module, inputs: Inputs) -> Tensor:
    """The last id of all stands for silence."""
    heard = base.get_audio_features(inputs["input_features"], ~inputs["input_features_mask"])
    found: Tensor = heard.pooler_output[0]
    last = torch.tensor([base.vocab_size - 1], device=found.device)
    silence: Tensor = base.embed_audio(input_ids=last)
    vectors = torch.where(heard.audio_mel_mask[0, :, None], silence, found)
    n_missing = base.config.audio_soft_tokens_per_image - len(vectors)
    return torch.cat([vectors, silence.expand(n_missing, -1)])


def embedded_by_towers(base: Module, ids: Tensor, embedded: Tensor) -> Tensor:
    """Ids behind those of texts are of images, and those behind these are of sounds."""
    vision, audio = base.embed_vision, base.embed_audio
    ends = ((vision, audio.vocab_offset), (audio, base.vocab_size))
    for embedder, end in ends:
        is_its = (ids >= embedder.vocab_offset) & (ids < end)
        its: Tensor = embedder(input_ids=torch.where(is_its, ids, embedder.vocab_offset))
        embedded = torch.where(is_its[..., None], its.to(embedded.dtype), embedded)
    return embedded


GEMMA3N = MediaFamily(
    "Gemma3nForConditionalGeneration",
    image_features("pixel_values"),
    sound_vectors=padded_sound,
    embedding=embedded_by_towers,
)

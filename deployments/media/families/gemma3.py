"""Gemma 3 and 3n: every image has one size, and so has every sound, however short it is."""

from dataclasses import dataclass

from deployments.contract.media_rules import AudioRules, Expansion, MediaRules
from deployments.media.families.described import Described, kind_fields
from deployments.media.families.llava import FixedImageRules

MAX_AUDIO_S = 30  # what is longer, the feature extractor would cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedAudioRules(AudioRules):
    n_ids: int
    before: str
    after: str

    def expand(self, n_samples: int) -> Expansion:
        return Expansion(f"{self.before}{self.placeholder}{self.after}", (self.n_ids,))


def gemma3_rules(processor: Described) -> MediaRules:
    """The template writes the token that begins an image."""
    return MediaRules(images=_images(processor, processor.boi_token))


def gemma3n_rules(processor: Described) -> MediaRules:
    tokenizer, extractor = processor.tokenizer, processor.feature_extractor
    token: str = processor.audio_token
    audio = FixedAudioRules(
        **kind_fields(token, token, processor.audio_token_id),
        sampling_rate=extractor.sampling_rate,
        max_samples=MAX_AUDIO_S * extractor.sampling_rate,
        n_ids=processor.audio_seq_length,
        before=f"\n\n{processor.boa_token}",
        after=f"{tokenizer.eoa_token}\n\n",
    )
    return MediaRules(images=_images(processor, processor.image_token), audio=audio)


def _images(processor: Described, marker: str) -> FixedImageRules:
    tokenizer = processor.tokenizer
    return FixedImageRules(
        **kind_fields(marker, tokenizer.image_token, tokenizer.image_token_id),
        n_ids=processor.image_seq_length,
        before=f"\n\n{tokenizer.boi_token}",
        after=f"{tokenizer.eoi_token}\n\n",
    )

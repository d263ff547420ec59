"""Models that hear through Whisper's encoder: Qwen2-Audio and Voxtral."""

from dataclasses import dataclass
from math import ceil

from deployments.contract.media_rules import AudioRules, Expansion, MediaRules, MediaSizeError
from deployments.media.families.described import Described, kind_fields

VOXTRAL_FRAMES = 8  # of one id: a convolution halves their number, and four become one
VOXTRAL_BEGIN = "[BEGIN_AUDIO]"
VOXTRAL_TRANSCRIPT = "<s>[INST]{sound}[/INST]{language}[TRANSCRIBE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAudioRules(AudioRules):
    """The encoder halves the number of frames, and pooling halves it again."""

    hop_length: int  # samples of a frame

    def expand(self, n_samples: int) -> Expansion:
        frames = ceil(n_samples / self.hop_length)
        n_ids = ((frames - 1) // 2 - 1) // 2 + 1
        if n_ids < 1:
            raise MediaSizeError(f"has {n_samples} samples, too few for this model")
        return Expansion(self.placeholder, (n_ids,))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAudioRules(AudioRules):
    """A sound is filled up to whole windows."""

    window: int  # samples
    n_window: int  # ids

    def expand(self, n_samples: int) -> Expansion:
        return Expansion(self.placeholder, (self.n_window * ceil(n_samples / self.window),))


def qwen2_audio_rules(processor: Described) -> MediaRules:
    extractor, token = processor.feature_extractor, processor.audio_token
    framed = f"{processor.audio_bos_token}{token}{processor.audio_eos_token}"
    return MediaRules(
        audio=PooledAudioRules(
            **kind_fields(token, token, processor.audio_token_id, framed),
            sampling_rate=extractor.sampling_rate,
            max_samples=extractor.n_samples,  # what is longer, the extractor would cut off
            hop_length=extractor.hop_length,
        )
    )


def voxtral_rules(processor: Described) -> MediaRules:
    extractor, token = processor.feature_extractor, processor.audio_token
    return MediaRules(
        audio=WindowAudioRules(
            **kind_fields(token, token, processor.audio_token_id, VOXTRAL_BEGIN + token),
            sampling_rate=extractor.sampling_rate,
            max_samples=None,
            transcript_form=VOXTRAL_TRANSCRIPT,
            window=extractor.n_samples,
            n_window=extractor.nb_max_frames // VOXTRAL_FRAMES,
        )
    )

"""How many ids a sound has: of one length, pooled, or in whole windows."""

from dataclasses import dataclass
from math import ceil

from deployments.contract.media_rules import AudioRules, Expansion, MediaSizeError


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedAudioRules(AudioRules):
    """Gemma 3n: every sound has as many ids, however short it is."""

    n_ids: int
    before: str
    after: str

    def expand(self, n_samples: int) -> Expansion:
        return Expansion(f"{self.before}{self.placeholder}{self.after}", (self.n_ids,))


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAudioRules(AudioRules):
    """Qwen2-Audio: Whisper's encoder halves the number of frames, and pooling halves it again."""

    hop_length: int  # samples of a frame

    def expand(self, n_samples: int) -> Expansion:
        frames = ceil(n_samples / self.hop_length)
        n_ids = ((frames - 1) // 2 - 1) // 2 + 1
        if n_ids < 1:
            raise MediaSizeError(f"has {n_samples} samples, too few for this model")
        return Expansion(self.placeholder, (n_ids,))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAudioRules(AudioRules):
    """Voxtral: a sound is filled up to whole windows of Whisper's encoder."""

    window: int  # samples
    n_window: int  # ids

    def expand(self, n_samples: int) -> Expansion:
        return Expansion(self.placeholder, (self.n_window * ceil(n_samples / self.window),))

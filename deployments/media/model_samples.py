"""Sounds as the samples that a replica makes vectors of: one channel of float32, at any rate."""

from io import BytesIO

import numpy as np
import soundfile

from deployments.media.images import UnreadableError
from deployments.media.medium import resampled_length
from deployments.media.sounds import BLOCK_FRAMES
from deployments.media.speech_samples import Floats, Resampler


def model_samples(data: bytes, rate: int) -> Floats:
    """As many as `Medium.n_samples` says. Raises UnreadableError."""
    parts: list[Floats] = []
    n_frames = 0
    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            own_rate = file.samplerate
            resampler = Resampler(own_rate, rate)
            while len(block := file.read(BLOCK_FRAMES, dtype="float32", always_2d=True)):
                n_frames += len(block)
                parts.append(resampler.push(np.nan_to_num(block.mean(1))))
    except Exception as error:  # soundfile raises what it likes
        raise UnreadableError("can't be decoded") from error
    parts.append(resampler.end())
    samples = np.zeros(resampled_length(n_frames, own_rate, rate), dtype=np.float32)
    made = np.concatenate(parts)[: len(samples)]
    samples[: len(made)] = made
    return samples

"""Sounds as a replica reads them: as many samples as the ingress has made places for."""

from io import BytesIO

import numpy as np
import pytest
import soundfile

from deployments.media.images import UnreadableError
from deployments.media.model_samples import model_samples
from deployments.media.sounds import read_sound

RATE = 16_000


def tone(rate: int, seconds: float = 0.4, channels: int = 1) -> bytes:
    at = np.arange(int(rate * seconds)) / rate
    one = np.sin(2 * np.pi * 440 * at).astype(np.float32) / 2
    file = BytesIO()
    soundfile.write(file, np.stack([one] * channels, 1), rate, format="WAV", subtype="FLOAT")
    return file.getvalue()


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_sound_of_any_rate_has_the_samples_that_were_counted(rate: int, channels: int) -> None:
    data = tone(rate, channels=channels)
    samples = model_samples(data, RATE)
    assert len(samples) == read_sound(data, max_s=1).n_samples(RATE)
    inner = slice(200, -200)
    expected = model_samples(tone(RATE), RATE)[: len(samples)]
    assert np.abs(samples[inner] - expected[inner]).max() < 0.01


def test_samples_of_the_model_s_own_rate_stay_as_they_are() -> None:
    samples = np.random.default_rng(0).uniform(-1, 1, 5_000).astype(np.float32)
    file = BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="FLOAT")
    assert np.array_equal(model_samples(file.getvalue(), RATE), samples)


def test_what_is_no_sound_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match="can't be decoded"):
        model_samples(b"no sound", RATE)

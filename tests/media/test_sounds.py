"""Sounds as models hear them: all that a file has, and as many samples as were counted."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from deployments.media.images import UnreadableError
from deployments.media.sounds import model_samples, read_sound, speech_samples
from tests.media.files import patched, sound

RATE = 16_000
LOW, HIGH = 440, 1000  # Hz
SECONDS = 0.6
ID3 = b"ID3\4\0\0\0\0\2\0" + bytes(256)
Floats = NDArray[np.float32]


def tone(hertz: int, rate: int = RATE, channels: int = 1) -> Floats:
    at = np.arange(int(rate * SECONDS)) / rate
    one = np.sin(2 * np.pi * hertz * at).astype(np.float32) / 2
    return np.stack([one] * channels)


def low(
    form: str = "wav", codec: str = "", rate: int = RATE, *, is_piped: bool = False, **options: str
) -> bytes:
    return sound(tone(LOW, rate), rate, form, codec, is_piped=is_piped, **options)


def fragments() -> bytes:
    return low("mp4", "aac", is_piped=True, movflags="frag_keyframe+empty_moov")


def high(form: str = "wav", codec: str = "", rate: int = RATE, channels: int = 1) -> bytes:
    return sound(tone(HIGH, rate, channels), rate, form, codec)


def heard(data: bytes) -> Floats:
    return np.frombuffer(model_samples(data, 60, RATE).data, dtype="<f4")


def pitch(samples: Floats) -> float:
    """The pitch of the middle."""
    middle = samples[len(samples) // 4 : -len(samples) // 4]
    found = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 1 << 15)).argmax()
    return float(found * RATE / (1 << 15))


def sized(riff: int, data: int) -> bytes:
    """A WAV file that says so of its lengths."""
    file = sound((tone(LOW) * 32767).astype(np.int16))
    at = file.index(b"data") + 4
    said = patched(file, at, data.to_bytes(4, "little"))
    return patched(said, 4, riff.to_bytes(4, "little"))


ONE: dict[str, Callable[[], bytes]] = {
    "wav": low,
    "a wav that was piped": lambda: low(is_piped=True),
    "a wav of no lengths": lambda: sized(0, 0),
    "a wav of a header that was written first": lambda: sized(36, 0),
    "a wav of espeak-ng": lambda: sized(0x7FFFF024, 0x7FFFF000),
    "a wav of arecord": lambda: sized(0x80000024, 0x80000000),
    "a wav that is longer than it says, as its samples are": lambda: patched(
        low(), 4, (1000).to_bytes(4, "little")
    ),
    "a long wav": lambda: low(rf64="always"),
    "a long wav of broadcasters": lambda: patched(low(rf64="always"), 0, b"BW64"),
    "a wav behind a tag": lambda: ID3 + low(),
    "mp3": lambda: low("mp3", "libmp3lame"),
    "an mp3 that was piped": lambda: low("mp3", "libmp3lame", is_piped=True),
    "an mp3 without a Xing header": lambda: low("mp3", "libmp3lame", write_xing="0"),
    "an mp3 behind zeros": lambda: bytes(1000) + low("mp3", "libmp3lame"),
    "an mp3 behind text": lambda: b"HTTP/1.0 200 OK\r\n\r\n" + low("mp3", "libmp3lame"),
    "an mp3 behind two tags and zeros": lambda: 2 * ID3 + bytes(9) + low("mp3", "libmp3lame"),
    "flac": lambda: low("flac", "flac"),
    "a flac that was piped": lambda: low("flac", "flac", is_piped=True),
    "a flac behind a tag": lambda: ID3 + low("flac", "flac"),
    "opus": lambda: low("ogg", "libopus", 48_000),
    "m4a": lambda: low("ipod", "aac"),
    "lossless m4a": lambda: low("ipod", "alac"),
    "mp4 in fragments": fragments,
    "webm of a browser": lambda: low("webm", "libopus", 48_000, is_piped=True),
    "m4a behind a tag": lambda: ID3 + low("ipod", "aac"),
    "aac": lambda: low("adts", "aac"),
}
JOINED: dict[str, Callable[[], bytes]] = {
    "wavs": lambda: low() + high(),
    "wavs of other rates and channels": lambda: low() + high(rate=44_100, channels=2),
    "long wavs": lambda: low(rf64="always") + high(),
    "mp3s": lambda: low("mp3", "libmp3lame") + high("mp3", "libmp3lame"),
    "mp3s of other rates": lambda: low("mp3", "libmp3lame") + high("mp3", "libmp3lame", 44_100),
    "flacs": lambda: low("flac", "flac") + high("flac", "flac"),
    "flacs of other rates": lambda: low("flac", "flac") + high("flac", "flac", 44_100, 2),
    "oggs": lambda: low("ogg", "libopus", 48_000) + high("ogg", "libopus", 48_000),
    "oggs of other channels": lambda: (
        low("ogg", "libopus", 48_000) + high("ogg", "libopus", 48_000, 2)
    ),
    "m4as": lambda: low("ipod", "aac") + high("ipod", "aac", 44_100),
    "webms": lambda: low("webm", "libopus", 48_000) + high("webm", "libopus", 48_000),
    "webms of browsers": lambda: (
        low("webm", "libopus", 48_000, is_piped=True) + high("webm", "libopus", 48_000)
    ),
    "aacs": lambda: low("adts", "aac") + high("adts", "aac"),
}
CUT: dict[str, Callable[[], bytes]] = {
    "wav": low,
    "a wav whose samples alone have a length": lambda: patched(low(), 4, b"\xff" * 4),
    "a long wav": lambda: low(rf64="always"),
    "mp3": lambda: low("mp3", "libmp3lame"),
    "flac": lambda: low("flac", "flac"),
    "joined flacs": lambda: low("flac", "flac") + low("flac", "flac"),
    "opus": lambda: low("ogg", "libopus", 48_000),
    "opus in short pages": lambda: low("ogg", "libopus", 48_000, page_duration="100000"),
    "m4a": lambda: low("ipod", "aac"),
    "mp4 in fragments": fragments,
    "webm": lambda: low("webm", "libopus", 48_000),
    "webm of a browser": lambda: low("webm", "libopus", 48_000, is_piped=True),
}


@pytest.mark.parametrize("name", ONE)
def test_a_sound_is_heard_in_any_form(name: str) -> None:
    samples = heard(ONE[name]())
    assert len(samples) / RATE == pytest.approx(SECONDS, abs=0.15)
    assert pitch(samples) == pytest.approx(LOW, abs=2)


@pytest.mark.parametrize("name", JOINED)
def test_all_sounds_that_a_file_joins_are_heard(name: str) -> None:
    samples = heard(JOINED[name]())
    assert len(samples) / RATE == pytest.approx(2 * SECONDS, abs=0.3)
    assert np.abs(samples).max() < 1
    assert pitch(samples[: int(SECONDS * RATE)]) == pytest.approx(LOW, abs=2)
    assert pitch(samples[-int(SECONDS * RATE) :]) == pytest.approx(HIGH, abs=2)


@pytest.mark.parametrize("name", CUT)
def test_a_sound_that_is_shorter_than_it_says_is_refused(name: str) -> None:
    whole = CUT[name]()
    with pytest.raises(UnreadableError, match="is cut off"):
        read_sound(whole[: len(whole) * 3 // 5], max_s=60)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_sound_of_any_rate_has_the_samples_that_were_counted(rate: int, channels: int) -> None:
    data = sound(tone(LOW, rate, channels), rate)
    samples = heard(data)
    assert len(samples) == read_sound(data, max_s=1).n_samples(RATE)
    inner = slice(200, -200)
    expected = tone(LOW)[0][: len(samples)]
    assert np.abs(samples[inner] - expected[inner]).max() < 0.01


def test_samples_of_the_model_s_own_rate_stay_as_they_are() -> None:
    samples = np.random.default_rng(0).uniform(-1, 1, 5_000).astype(np.float32)
    assert np.array_equal(heard(sound(samples)), samples)
    whole = (samples * 32767).astype(np.int16)
    for data in (sound(whole), sound(whole, form="flac", codec="flac")):
        assert np.array_equal(heard(data), (whole / 32768).astype(np.float32))


def test_one_sound_in_two_files_is_one_medium() -> None:
    samples = (tone(LOW) * 32767).astype(np.int16)
    files = (sound(samples), sound(samples, form="flac", codec="flac"), sound(samples[:, 1:]))
    first, same, other = (read_sound(data, max_s=60).digest for data in files)
    assert first == same != other


def test_what_is_beyond_1_or_no_number_is_within_16_bits() -> None:
    samples = np.array([0.5, 2, -2, np.nan, np.inf, -np.inf], dtype=np.float32)
    spoken = np.frombuffer(speech_samples(sound(samples), 1, RATE).data, dtype="<i2")
    assert [*spoken] == [16384, 32767, -32767, 0, 0, 0]


@pytest.mark.parametrize("form", ["wav", "ogg"])
def test_a_limit_is_for_all_that_is_decoded(form: str) -> None:
    codec, rate = ("libopus", 48_000) if form == "ogg" else ("", RATE)
    two = low(form, codec, rate) + high(form, codec, rate)
    with pytest.raises(UnreadableError, match="has more than 1 second"):
        read_sound(two, max_s=1)

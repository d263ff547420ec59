"""Sounds as FFmpeg decodes them, brought to another rate, in the process of the decoder alone.

What is there is counted, whatever a header says. Nothing but the bytes of the file is opened.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from io import BytesIO
from itertools import groupby
from math import ceil
from typing import NamedTuple, NoReturn

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deployments.contract.media_rules import MediaKind
from deployments.media.images import UnreadableError
from deployments.media.medium import Medium
from deployments.media.mpeg_frames import declared_s
from deployments.media.sound_parts import parts_of
from kv.content import DIGEST_BYTES

BLOCK_FRAMES = 1 << 16
MAX_CHANNELS = 8
MIN_RATE, MAX_RATE = 1000, 384_000
PEAK = 32767
ALLOWED_GAP_S = 0.1  # by which a sound may be shorter than it says
CODECS = (
    *("aac", "alac", "amrnb", "amrwb", "flac", "mp1float", "mp2float", "mp3float", "mp3", "opus"),
    *("vorbis", "adpcm_ima_wav", "adpcm_ms", "gsm_ms", "pcm_alaw", "pcm_mulaw", "pcm_u8"),
    *("pcm_f32be", "pcm_f32le", "pcm_f64be", "pcm_f64le", "pcm_s16be", "pcm_s16le", "pcm_s24be"),
    *("pcm_s24le", "pcm_s32be", "pcm_s32le", "pcm_s8"),
)
# No other decoder is tried, also where FFmpeg looks at streams that are not asked for.
OPTIONS = {"codec_whitelist": ",".join(CODECS), "protocol_whitelist": "none", "enable_drefs": "0"}
SCALES = {"u8": 1 << 7, "s16": 1 << 15, "s32": 1 << 31}  # of samples that are integers
EXACT = ("flac", "mov")  # which say how long they are, where FFmpeg estimates it of others
# Of the resampler.
MAX_FRACTION = 1000  # rates are approximated by fractions of such numbers: by less than 1 in 10^6
ZERO_CROSSINGS = 16  # of the filter, on each side
PASSED = 0.95  # of the band below the lower rate

Floats = NDArray[np.float32]
AsBytes = Callable[[Floats], bytes]


class _Block(NamedTuple):
    rate: int
    samples: Floats  # of all channels' mean


def read_sound(data: bytes, max_s: float) -> Medium:
    """Raises UnreadableError."""
    return _read(data, max_s, None)


def speech_samples(data: bytes, max_s: float, rate: int) -> Medium:
    """Its data are the samples at this rate, in 16 bits, little endian. Raises UnreadableError."""

    def as_bytes(samples: Floats) -> bytes:  # files may have samples that are beyond 1
        return (samples.clip(-1, 1) * PEAK).round().astype("<i2").tobytes()

    return _read(data, max_s, (rate, as_bytes))


def model_samples(data: bytes, max_s: float, rate: int) -> Medium:
    """Its data are the samples at this rate, in float32, as many as `Medium.n_samples` says. Raises
    UnreadableError.
    """
    medium = _read(data, max_s, (rate, lambda samples: samples.astype("<f4").tobytes()))
    n_bytes = medium.n_samples(rate) * 4
    return replace(medium, data=medium.data[:n_bytes].ljust(n_bytes, b"\0"))


def _read(data: bytes, max_s: float, wanted: tuple[int, AsBytes] | None) -> Medium:
    """`wanted` is the rate of the samples that stand in the file's place, and their form."""
    hashed, n_frames, rate = blake2b(digest_size=DIGEST_BYTES), 0, 0
    resampler: Resampler | None = None
    made = bytearray()
    for block in _at_one_rate(_blocks(data)):
        if not rate:
            rate = block.rate
            hashed.update(b"audio %d " % rate)
            resampler = Resampler(rate, wanted[0]) if wanted else None
        n_frames += len(block.samples)
        if n_frames > max_s * rate:
            most = f"{max_s:g} seconds, which is the most that is allowed"
            raise UnreadableError(f"has more than {most}")
        hashed.update(block.samples.data)
        if wanted and resampler:
            made += wanted[1](resampler.push(block.samples))
    if not n_frames:
        raise UnreadableError("is cut off: it has no samples")
    if wanted and resampler:
        made += wanted[1](resampler.end())
    return Medium(
        kind=MediaKind.AUDIO,
        data=bytes(made) if wanted else data,
        digest=hashed.digest(),
        n_frames=n_frames,
        rate=rate,
    )


def _at_one_rate(blocks: Iterator[_Block]) -> Iterator[_Block]:
    """Brings all blocks to the rate of the first one."""
    first = 0
    for rate, run in groupby(blocks, lambda block: block.rate):
        first = first or rate
        if rate == first:
            yield from run
            continue
        resampler = Resampler(rate, first)
        for block in run:
            yield _Block(first, resampler.push(block.samples))
        yield _Block(first, resampler.end())


def _blocks(data: bytes) -> Iterator[_Block]:
    """Frames are small, and each call costs more than a block's arithmetic."""
    for frames in _frames_of_blocks(data):
        samples = np.concatenate([_channels(frame) for frame in frames], axis=1)
        yield _Block(frames[0].sample_rate, np.nan_to_num(samples.mean(0), posinf=0, neginf=0))


def _frames_of_blocks(data: bytes) -> Iterator[list[AudioFrame]]:
    """Frames of one form, together at least one block but for the last ones."""
    demuxer, sounds = parts_of(data)
    block: list[AudioFrame] = []
    n_samples = 0
    for sound in sounds:
        for frame in _frames(sound, demuxer):
            if block and (n_samples >= BLOCK_FRAMES or _form(frame) != _form(block[0])):
                yield block
                block, n_samples = [], 0
            block.append(frame)
            n_samples += frame.samples
    if block:
        yield block


def _form(frame: AudioFrame) -> tuple[int, int]:
    return frame.sample_rate, frame.layout.nb_channels


def _channels(frame: AudioFrame) -> Floats:
    """[channels, samples], between -1 and 1."""
    samples: NDArray[np.generic] = frame.to_ndarray()
    if not frame.format.is_planar:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    scale = SCALES.get(frame.format.packed.name)
    if scale is None:
        return samples.astype(np.float32)
    middle = 1 << 7 if samples.dtype == np.uint8 else 0
    return (samples.astype(np.float32) - middle) / np.float32(scale)


def _frames(sound: bytes, demuxer: str) -> Iterator[AudioFrame]:
    try:
        with av.open(
            BytesIO(sound),
            "r",
            format=demuxer,
            container_options=OPTIONS,
            io_open=_refuse_to_open,
        ) as container:
            yield from _decoded(container, sound, demuxer)
    except UnreadableError:
        raise
    except av.error.EOFError as error:
        raise UnreadableError("is cut off: it ends before its sound begins") from error
    except Exception as error:  # FFmpeg's own errors, and PyAV raises what it likes
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableError(f"can't be decoded: {reason}") from error


def _decoded(container: InputContainer, sound: bytes, demuxer: str) -> Iterator[AudioFrame]:
    stream = container.streams.best("audio")
    if not isinstance(stream, AudioStream):
        raise UnreadableError("can't be decoded: it has no sound")
    _check_codec(stream)
    stream.codec_context.thread_count = 1
    n_good = n_bad = 0
    seconds = 0.0
    for packet in container.demux(stream):
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:  # junk, and what stands between joined sounds
            n_bad += 1
            continue
        for frame in frames:
            _check_form(frame)
            n_good += 1
            seconds += frame.samples / frame.sample_rate
            yield frame
    declared = _declared_s(stream, sound, demuxer)
    if seconds < declared - ALLOWED_GAP_S:
        raise UnreadableError(f"is cut off: {seconds:.2f} of {declared:.2f} seconds are there")
    if n_bad > n_good:
        raise UnreadableError(f"can't be decoded: {n_bad} of its {n_bad + n_good} packets are junk")


def _refuse_to_open(*asked: object) -> NoReturn:
    raise UnreadableError("can't be decoded: it names other files")


def _check_codec(stream: AudioStream) -> None:
    name = stream.codec_context.name
    if name not in CODECS:
        raise UnreadableError(f"has a sound of the codec {name}, which is not read here")


def _check_form(frame: AudioFrame) -> None:
    rate, channels = frame.sample_rate, frame.layout.nb_channels
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UnreadableError(f"has {rate} samples a second; {MIN_RATE} to {MAX_RATE} are allowed")
    if channels > MAX_CHANNELS:
        raise UnreadableError(f"has {channels} channels, and at most {MAX_CHANNELS} are allowed")


def _declared_s(stream: AudioStream, sound: bytes, demuxer: str) -> float:
    """The least seconds that the sound says it has; 0 for one that does not say."""
    if demuxer == "mp3":
        return declared_s(sound)
    if demuxer not in EXACT or stream.duration is None or stream.time_base is None:
        return 0.0
    return float(stream.duration * stream.time_base)


class Resampler:
    """A resampler by a windowed sinc: one product of a matrix with all periods of the two rates."""

    def __init__(self, rate: int, new_rate: int) -> None:
        ratio = Fraction(new_rate, rate).limit_denominator(MAX_FRACTION)
        self._up, self._down = ratio.numerator, ratio.denominator
        self._is_same = self._up == self._down
        cutoff = min(1.0, self._up / self._down) * PASSED
        self._half = ceil(ZERO_CROSSINGS / cutoff)
        self._width = self._down + 2 * self._half
        self._matrix = None if self._is_same else self._made(cutoff)
        self._rest = np.zeros(self._half, dtype=np.float32)
        self._n_in = self._n_out = 0

    def _made(self, cutoff: float) -> Floats:
        """[samples of a period and around it, new samples of a period]"""
        at = np.arange(self._up) * self._down / self._up + self._half
        distance = np.arange(self._width)[:, None] - at
        window = 0.5 + 0.5 * np.cos(np.pi * np.clip(distance / self._half, -1, 1))
        return (cutoff * np.sinc(cutoff * distance) * window).astype(np.float32)

    def push(self, samples: Floats) -> Floats:
        self._n_in += len(samples)
        if self._matrix is None:
            return samples
        self._rest = np.concatenate([self._rest, samples])
        n_periods = (len(self._rest) - self._width) // self._down + 1
        if n_periods < 1:
            return samples[:0]
        made: Floats = sliding_window_view(self._rest, self._width)[:: self._down] @ self._matrix
        self._rest = self._rest[n_periods * self._down :]
        self._n_out += made.size
        return made.ravel()

    def end(self) -> Floats:
        """The last samples."""
        if self._is_same:
            return self._rest[:0]
        n_left = ceil(self._n_in * self._up / self._down) - self._n_out
        n_in = self._n_in
        last = self.push(np.zeros(self._width + self._down, dtype=np.float32))
        self._n_in = n_in
        return last[: max(0, n_left)]

"""Sounds as libsndfile decodes them, in the process of the decoder and in replicas alike."""

from hashlib import blake2b
from io import BytesIO

import soundfile

from deployments.media.images import UnreadableError
from deployments.media.medium import Medium
from deployments.media_rules import MediaKind
from kv.content import DIGEST_BYTES

BLOCK_FRAMES = 1 << 16
MAX_CHANNELS = 8
MIN_RATE, MAX_RATE = 1000, 384_000
BYTES_PER_SAMPLE = 4
UNKNOWN_LENGTHS = (0, 0xFFFFFFFF)  # of those who wrote before they knew


def read_sound(data: bytes, max_s: float) -> Medium:
    """Counts what is there, whatever the header says. Raises UnreadableError."""
    _check_is_whole(data)
    hashed, n_frames = blake2b(digest_size=DIGEST_BYTES), 0
    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            rate, channels = file.samplerate, file.channels
            _check_form(rate, channels)
            hashed.update(b"audio %d %d " % (rate, channels))
            while block := bytes(file.buffer_read(BLOCK_FRAMES, dtype="float32")):
                n_frames += len(block) // (BYTES_PER_SAMPLE * channels)
                if n_frames > max_s * rate:
                    raise UnreadableError(
                        f"has more than {max_s:g} seconds, which is the most that is allowed"
                    )
                hashed.update(block)
            declared = file.frames
    except UnreadableError:
        raise
    except Exception as error:  # soundfile raises what it likes
        reason = str(error).rpartition(">: ")[2]  # behind the name of the file object
        raise UnreadableError(f"can't be decoded: {reason}") from error
    if not n_frames or n_frames < declared:
        raise UnreadableError(f"is cut off: {n_frames} of {declared} samples are there")
    return Medium(
        kind=MediaKind.AUDIO, data=data, digest=hashed.digest(), n_frames=n_frames, rate=rate
    )


def _check_is_whole(data: bytes) -> None:
    """A WAV file says how long it is. libsndfile reads what is there of one that is cut off."""
    declared = int.from_bytes(data[4:8], "little") if data[:4] == b"RIFF" else 0
    if declared not in UNKNOWN_LENGTHS and declared + 8 > len(data):
        raise UnreadableError(f"is cut off: {len(data)} of {declared + 8} bytes are there")


def _check_form(rate: int, channels: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UnreadableError(f"has {rate} samples a second; {MIN_RATE} to {MAX_RATE} are allowed")
    if channels > MAX_CHANNELS:
        raise UnreadableError(f"has {channels} channels, and at most {MAX_CHANNELS} are allowed")

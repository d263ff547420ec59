"""Cuts a file into the sounds that were joined in it, so that none is passed over in silence.

What says itself how long it is has to be as long. Nothing is decoded here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from deployments.media.file_types import format_of
from deployments.media.images import UnreadableError
from deployments.media.mpeg_frames import first_frame

RIFF_HEAD = 8
# Of those who write before they know how long it will be: 0, or about as much as there can be.
LEAST_UNKNOWN = 0x7F000000
FLAC_HEAD = b"fLaC\0\0\0\x22"  # with that of the block that each stream begins with
OGG_HEAD, OGG_FIRST = 27, 2  # bytes, and the flag of a page that begins a stream
BOXES = {b"ftyp", b"moov", b"mdat", b"moof", b"free", b"skip", b"sidx", b"styp", b"mfra", b"udta"}
BOXES |= {b"uuid", b"wide", b"meta", b"pnot"}
EBML, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


class Parts(NamedTuple):
    """`demuxer` is FFmpeg's name for what reads each of them."""

    demuxer: str
    sounds: Sequence[bytes]


def parts_of(data: bytes) -> Parts:
    """Raises UnreadableError."""
    demuxer, cut = READERS.get(format_of(data) or "", ("", _whole))
    if not demuxer:
        raise UnreadableError("can't be decoded: it is no sound")
    return Parts(demuxer, list(cut(data)))


def _whole(data: bytes) -> Iterator[bytes]:
    yield data


def _frames(data: bytes) -> Iterator[bytes]:
    yield data[first_frame(data) or 0 :]


def _riffs(data: bytes) -> Iterator[bytes]:
    at = 0
    while data.startswith((b"RIFF", b"RF64"), at):
        end = at + RIFF_HEAD + _size(data, at)
        is_known = 0 < _size(data, at) < LEAST_UNKNOWN
        if not _is_sized(data, at, min(end, len(data)) if is_known else len(data)) or not is_known:
            yield data[at:]
            return
        _check_is_whole(data, end)
        yield data[at:end]
        at = end if data.startswith(b"RIFF", end) else end + 1  # chunks may be padded to two bytes


def _size(data: bytes, at: int) -> int:
    """The size that a RIFF chunk says it has, in bytes."""
    return int.from_bytes(data[at + 4 : at + RIFF_HEAD], "little")


def _is_sized(data: bytes, at: int, end: int) -> bool:
    """Whether a WAV file says how many samples it has."""
    at += RIFF_HEAD + 4
    while at + RIFF_HEAD <= end:
        size = _size(data, at)
        if data.startswith(b"data", at):
            return 0 < size < LEAST_UNKNOWN and _check_is_whole(data, at + RIFF_HEAD + size)
        at += RIFF_HEAD + size + size % 2
    return False


def _flacs(data: bytes) -> Iterator[bytes]:
    begin = max(0, data.find(FLAC_HEAD))
    while (end := data.find(FLAC_HEAD, begin + 1)) > 0:
        yield data[begin:end]
        begin = end
    yield data[begin:]


def _oggs(data: bytes) -> Iterator[bytes]:
    """Streams that begin together are one sound."""
    begin, are_first = 0, True
    for at in _pages(data):
        is_first = bool(data[at + 5] & OGG_FIRST)
        if is_first and not are_first:
            yield data[begin:at]
            begin = at
        are_first = is_first
    yield data[begin:]


def _pages(data: bytes) -> Iterator[int]:
    """Yields the beginning of each page."""
    at = data.find(b"OggS")
    while 0 <= at <= len(data) - OGG_HEAD:
        yield at
        n_segments = data[at + OGG_HEAD - 1]
        end = at + OGG_HEAD + n_segments
        at = data.find(b"OggS", end + sum(data[at + OGG_HEAD : end]))


def _mp4s(data: bytes) -> Iterator[bytes]:
    begin = at = 0
    while (name := data[at + 4 : at + 8]) in BOXES:
        if name == b"ftyp" and at > begin:
            yield data[begin:at]
            begin = at
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        at += size if size >= 8 else len(data)
        _check_is_whole(data, at if size else len(data))
    yield data[begin:]


def _webm(data: bytes) -> Iterator[bytes]:
    """FFmpeg goes on behind a stream by itself. Browsers' streams do not say how long they are."""
    segment = _behind(data, len(EBML))
    if data.startswith(SEGMENT, segment):
        _check_is_whole(data, _behind(data, segment + len(SEGMENT)))
    yield data


def _behind(data: bytes, at: int) -> int:
    """Finds the end of an EBML element whose length is at `at`, or the beginning of its content if
    that is not known."""
    n_bytes = 9 - (data[at] if at < len(data) else 0).bit_length()
    most = (1 << 7 * n_bytes) - 1
    length = int.from_bytes(data[at : at + n_bytes], "big") & most
    return at + n_bytes + (length if length < most else 0)


def _check_is_whole(data: bytes, end: int) -> bool:
    """True. Raises UnreadableError."""
    if end > len(data):
        raise UnreadableError(f"is cut off: {len(data)} of {end} bytes are there")
    return True


READERS: Mapping[str, tuple[str, Callable[[bytes], Iterator[bytes]]]] = {
    "wav": ("wav", _riffs),
    "mp3": ("mp3", _frames),
    "flac": ("flac", _flacs),
    "ogg": ("ogg", _oggs),
    "mp4": ("mov", _mp4s),
    "webm": ("matroska", _webm),
    "aac": ("aac", _whole),
}

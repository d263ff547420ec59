"""Cuts a file into the sounds that were joined in it, so that none is passed over in silence.

What says itself how long it is has to be as long. Nothing is decoded here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from deployments.media.file_types import format_of
from deployments.media.images import UnreadableError
from deployments.media.mpeg_frames import behind_tags, first_frame

RIFFS = (b"RIFF", b"RF64", b"BW64")
RIFF_HEAD = 8
# Of those who write before they know how long it will be: 0, or about as much as there can be.
LEAST_UNKNOWN, LEAST_UNKNOWN_64 = 0x7F000000, 1 << 62
FLAC_HEAD = b"fLaC\0\0\0\x22"  # with that of the block that each stream begins with
OGG_HEAD, OGG_FIRST = 27, 2  # bytes, and the flag of a page that begins a stream
BOXES = {b"ftyp", b"moov", b"mdat", b"moof", b"free", b"skip", b"sidx", b"styp", b"mfra", b"udta"}
BOXES |= {b"uuid", b"wide", b"meta", b"pnot", b"emsg", b"prft", b"ssix"}
EBML = b"\x1a\x45\xdf\xa3"
# What a WebM file has beside it: a segment, and what stands in one and in its clusters, of which
# browsers do not say how long they are.
ELEMENTS = {EBML, b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75", b"\xa0", b"\xa3", b"\xa7", b"\xab"}
ELEMENTS |= {b"\xe7", b"\xec", b"\xbf", b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66"}
ELEMENTS |= {b"\x16\x54\xae\x6b", b"\x1c\x53\xbb\x6b", b"\x12\x54\xc3\x67", b"\x10\x43\xa7\x70"}


class Parts(NamedTuple):
    """`demuxer` is FFmpeg's name for what reads each of them."""

    demuxer: str
    sounds: Sequence[bytes]


def parts_of(data: bytes) -> Parts:
    """Raises UnreadableError."""
    data = data[behind_tags(data) :]
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
    while data.startswith(RIFFS, at):
        end = _end_of_riff(data, at)
        _check_is_whole(data, end)
        yield data[at:end]
        at = end if data.startswith(RIFFS, end) else end + 1  # chunks may be padded to two bytes


def _end_of_riff(data: bytes, at: int) -> int:
    """Finds the end of a WAV file, which is not before that of its samples. One that does not say
    how long both are has all that is there.
    """
    long, long_samples = _long_sizes(data, at)
    size = long or _size(data, at)
    end = at + RIFF_HEAD + size if size else len(data)
    samples_end = _end_of_samples(data, at, min(end, len(data)), long_samples)
    return max(end, samples_end) if samples_end else len(data)


def _size(data: bytes, at: int) -> int:
    """The size that a RIFF chunk says it has, in bytes; 0 if that is not known."""
    size = int.from_bytes(data[at + 4 : at + RIFF_HEAD], "little")
    return size if size < LEAST_UNKNOWN else 0


def _long_sizes(data: bytes, at: int) -> tuple[int, int]:
    """Finds the sizes in 64 bits that an RF64 file has for itself and for its samples; 0 for one
    that is not known.
    """
    at += RIFF_HEAD + 4
    if not data.startswith(b"ds64", at):
        return 0, 0
    both = (data[begin : begin + 8] for begin in (at + RIFF_HEAD, at + RIFF_HEAD + 8))
    riff, samples = (int.from_bytes(size, "little") for size in both)
    return riff if riff < LEAST_UNKNOWN_64 else 0, samples if samples < LEAST_UNKNOWN_64 else 0


def _end_of_samples(data: bytes, at: int, end: int, long_size: int) -> int:
    """Finds the end of a WAV file's samples; 0 where it does not say how many there are. Raises
    UnreadableError.
    """
    found = 0
    at += RIFF_HEAD + 4
    while at + RIFF_HEAD <= end:
        size = _size(data, at)
        if data.startswith(b"data", at):
            if found:  # FFmpeg would read the first ones alone
                raise UnreadableError("can't be decoded: its samples are in several chunks")
            size = size or long_size
            found = at + RIFF_HEAD + size
            _check_is_whole(data, found)
            if not size:
                return 0
        at += RIFF_HEAD + size + size % 2
    return found


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
    """Yields the beginning of each page. Raises UnreadableError."""
    at = data.find(b"OggS")
    while at >= 0:
        _check_is_whole(data, at + OGG_HEAD)
        yield at
        n_segments = data[at + OGG_HEAD - 1]
        end = at + OGG_HEAD + n_segments
        end += sum(data[at + OGG_HEAD : end])
        _check_is_whole(data, end)
        at = data.find(b"OggS", end)


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


def _webms(data: bytes) -> Iterator[bytes]:
    begin = at = 0
    while (name := data[at : at + _n_bytes(data, at)]) in ELEMENTS:
        if name == EBML and at > begin:
            yield data[begin:at]
            begin = at
        at = _behind(data, at + len(name))
        _check_is_whole(data, at)
    yield data[begin:]


def _n_bytes(data: bytes, at: int) -> int:
    """Tells by the first byte how many an EBML element's name has, or its length."""
    return 9 - (data[at] if at < len(data) else 0).bit_length()


def _behind(data: bytes, at: int) -> int:
    """Finds the end of an EBML element whose length is at `at`, or the beginning of its content if
    that is not known."""
    n_bytes = _n_bytes(data, at)
    most = (1 << 7 * n_bytes) - 1
    length = int.from_bytes(data[at : at + n_bytes], "big") & most
    return at + n_bytes + (length if length < most else 0)


def _check_is_whole(data: bytes, end: int) -> None:
    """Raises UnreadableError."""
    if end > len(data):
        raise UnreadableError(f"is cut off: {len(data)} of {end} bytes are there")


READERS: Mapping[str, tuple[str, Callable[[bytes], Iterator[bytes]]]] = {
    "wav": ("wav", _riffs),
    "mp3": ("mp3", _frames),
    "flac": ("flac", _flacs),
    "ogg": ("ogg", _oggs),
    "mp4": ("mov", _mp4s),
    "webm": ("matroska", _webms),
    "aac": ("aac", _whole),
}

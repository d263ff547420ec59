"""Tells what a file is by its bytes. Names and declared types decide nothing."""

from enum import StrEnum

from deployments.media.mpeg_frames import (
    ID3,
    MAX_JUNK,
    behind_tags,
    first_frame,
    is_frame,
    is_layer_3,
)


class FileKind(StrEnum):
    """A kind of file that a part of a message may be. A document becomes text and images."""

    IMAGE = "image"
    AUDIO = "audio"
    DOCUMENT = "document"


# Names as errors say them, by the kinds of parts.
FORMATS = {
    FileKind.IMAGE: ("png", "jpeg", "gif", "webp"),
    FileKind.AUDIO: ("wav", "mp3", "flac", "ogg", "mp4", "webm", "aac"),
    FileKind.DOCUMENT: ("pdf",),
}
PREFIXES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"\x1a\x45\xdf\xa3", "webm"),
    (b"%PDF-", "pdf"),
    # What is refused by its name.
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"BM", "bmp"),
    (b"\0\0\1\0", "ico"),
    (b"FORM", "aiff"),
    (b"#!AMR", "amr"),
    (b"caff", "caf"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "wma"),
    (b"PK\3\4", "zip"),
)
RIFF = {b"WEBP": "webp", b"WAVE": "wav", b"AVI ": "avi"}
IMAGE_BRANDS = {b"avif": "avif", b"avis": "avif"}
IMAGE_BRANDS |= dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1"), "heic")
MAX_PDF_JUNK = 1024  # bytes before the head of a PDF file, as Acrobat reads it


def format_of(data: bytes) -> str | None:
    """None for a format that is not known."""
    if data[:4] in (b"RIFF", b"RF64", b"BW64"):
        return RIFF.get(data[8:12])
    if data[4:8] == b"ftyp":
        return IMAGE_BRANDS.get(data[8:12], "mp4")
    if data.startswith(ID3):  # which others than MP3 have, too
        behind = data[behind_tags(data) :][: 2 * MAX_JUNK]
        is_cut = behind.startswith(ID3)  # in a tag's head, behind which nothing is
        return "mp3" if is_cut else format_of(behind) or "mp3"
    found = next((name for prefix, name in PREFIXES if data.startswith(prefix)), None)
    return found or _late_format_of(data)


def _late_format_of(data: bytes) -> str | None:
    """The format of a file that no magic number begins."""
    if is_frame(data):
        return "mp3" if is_layer_3(data) else "aac"
    if data.find(b"%PDF-", 0, MAX_PDF_JUNK + 5) >= 0:
        return "pdf"
    return "mp3" if first_frame(data) is not None else None


def kind_of(data: bytes) -> FileKind | None:
    """Returns the kind of a file that may be anything, or None for a format that is not known."""
    found = format_of(data)
    return next((kind for kind, formats in FORMATS.items() if found in formats), None)


def format_problem(data: bytes, kind: FileKind | None) -> str:
    """Why the file can't be of this kind, or None for any; "" if it can."""
    formats = FORMATS.values() if kind is None else [FORMATS[kind]]
    found, allowed = format_of(data), [name for names in formats for name in names]
    if found in allowed:
        return ""
    seen = f"is {found}" if found else "has the first bytes of no known format"
    return f"{seen}; it must be {' or '.join(', '.join(allowed).rsplit(', ', 1))}"

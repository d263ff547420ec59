"""Tells what a file is by its first bytes. Names and declared types decide nothing."""

from enum import StrEnum


class FileKind(StrEnum):
    """What a part of a message may be. A document becomes text and images."""

    IMAGE = "image"
    AUDIO = "audio"
    DOCUMENT = "document"


# Names as errors say them, by the kinds of parts.
FORMATS = {
    FileKind.IMAGE: ("png", "jpeg", "gif", "webp"),
    FileKind.AUDIO: ("wav", "mp3", "flac", "ogg"),
    FileKind.DOCUMENT: ("pdf",),
}
ALIASES = {"jpg": "jpeg", "mpeg": "mp3", "x-wav": "wav", "wave": "wav", "x-flac": "flac"}
PREFIXES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"%PDF-", "pdf"),
)
RIFF = {b"WEBP": "webp", b"WAVE": "wav"}


def format_of(data: bytes) -> str | None:
    """None for a format that is not known."""
    if data[:4] == b"RIFF":
        return RIFF.get(data[8:12])
    found = next((name for prefix, name in PREFIXES if data.startswith(prefix)), None)
    # A frame of MP3 begins with 11 set bits, then the bits of layer III.
    if found is None and data[:1] == b"\xff" and data[1:2] and data[1] & 0xE6 == 0xE2:
        return "mp3"
    return found


def kind_of(data: bytes) -> FileKind | None:
    """What a file is, of one that may be anything; None for a format that is not known."""
    found = format_of(data)
    return next((kind for kind, formats in FORMATS.items() if found in formats), None)


def format_problem(data: bytes, kind: FileKind, declared: str) -> str:
    """Why the file can't be what it is sent as; "" if it can. `declared` is a media type, or its
    second half, or "" for none.
    """
    found, allowed = format_of(data), FORMATS[kind]
    if found not in allowed:
        seen = f"is {found}" if found else "has the first bytes of no known format"
        return f"{seen}; it must be {' or '.join(', '.join(allowed).rsplit(', ', 1))}"
    name = declared.rpartition("/")[2].lower()
    if name and ALIASES.get(name, name) not in (found, "octet-stream"):
        return f"is {found}, though {declared} is declared"
    return ""

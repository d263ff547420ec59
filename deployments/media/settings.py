"""The limits of media in requests; read once, at the root."""

from dataclasses import dataclass

MAX_MEDIA = 32
MAX_MEDIUM_BYTES = 16 << 20
MAX_PIXELS = 36_000_000  # an image of 8K has 33 million
MAX_AUDIO_S = 600.0
MAX_PAGES = 100
FETCH_TIMEOUT_S = 10.0
DECODE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSettings:
    """max_media: of a request. Each page of a document that becomes an image counts.
    max_bytes: of a file, after base64.
    max_pixels: of an image.
    max_audio_s: of a sound.
    max_pages: of a document.
    hosts: names, or addresses, with or without a port, that URLs may be fetched from; "*" for all
        that have public addresses.
    folder: what `file://` URLs are below; None for no such URLs.
    """

    max_media: int = MAX_MEDIA
    max_bytes: int = MAX_MEDIUM_BYTES
    max_pixels: int = MAX_PIXELS
    max_audio_s: float = MAX_AUDIO_S
    max_pages: int = MAX_PAGES
    fetch_timeout_s: float = FETCH_TIMEOUT_S
    decode_timeout_s: float = DECODE_TIMEOUT_S
    hosts: tuple[str, ...] = ()
    folder: str | None = None

"""Has files decoded in a process of its own, which is killed when one takes too long.

A file that crashes its decoder is refused as one that can't be decoded, and hurts no other one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, BinaryIO

from deployments.contract.media_rules import MediaKind
from deployments.media.file_types import FileKind
from deployments.media.medium import DecodedPiece, Medium, WantedForm
from deployments.media.settings import MediaSettings
from deployments.sandbox.process import JobProcess, ProcessDiedError

DECODER = "deployments.media.decoder"
MAX_ANSWER_BYTES = 64 << 20  # of a line: the texts of a document
MAX_MEDIA_BYTES = 64 << 20  # that come back of one file: images of pages
MAX_MEMORY_BYTES = 1 << 30  # of the decoder
TOO_LARGE = f"has more than {MAX_MEDIA_BYTES >> 20} MiB as images of pages: send fewer pages"
BROKEN = "can't be decoded: it breaks the decoder, or needs too much memory"


class DecodingError(Exception):
    """The file is refused; the message says why."""


class TooLargeError(Exception):
    """The decoder has more to send than may come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    kind: FileKind
    is_low_detail: bool = False
    with_images: bool = False  # of a document's pages, each of which is a medium
    wanted: WantedForm = WantedForm.FILE
    rate: int = 0  # of samples that are wanted

    @property
    def max_bytes(self) -> int:
        """The most that may come back. Limits of their own bound pixels and samples."""
        return MAX_MEDIA_BYTES if self.wanted is WantedForm.FILE else MAX_MEMORY_BYTES

    def line(self, settings: MediaSettings, n_bytes: int) -> bytes:
        most = min(settings.max_pages, settings.max_media if self.with_images else inf)
        asked = {
            "kind": self.kind,
            "is_low_detail": self.is_low_detail,
            "with_images": self.with_images,
            "wanted": self.wanted,
            "rate": self.rate,
            "max_pixels": settings.max_pixels,
            "max_audio_s": settings.max_audio_s,
            "max_pages": most,
            "n_bytes": n_bytes,
        }
        return json.dumps(asked).encode() + b"\n"


class DecoderProcess:
    """Used by one thread at a time."""

    def __init__(self, settings: MediaSettings) -> None:
        self._settings = settings
        self._process = JobProcess(DECODER, settings.decode_timeout_s)

    def decode(self, job: Job, data: bytes) -> list[DecodedPiece]:
        """Blocks for the settings' `decode_timeout_s` at most. Raises DecodingError."""
        line = job.line(self._settings, len(data))
        try:
            return self._process.run(
                lambda jobs, answers: list(_exchange(jobs, answers, line, data, job.max_bytes))
            )
        except TooLargeError:
            self.close()
            raise DecodingError(TOO_LARGE) from None
        except ProcessDiedError as death:
            late = f"takes more than {self._settings.decode_timeout_s:g} seconds to decode"
            raise DecodingError(late if death.is_late else BROKEN) from None

    def close(self) -> None:
        self._process.close()


def _exchange(
    jobs: BinaryIO, answers: BinaryIO, line: bytes, data: bytes, max_bytes: int
) -> Iterator[DecodedPiece]:
    jobs.write(line)
    jobs.write(data)
    jobs.flush()
    answer = json.loads(answers.readline(MAX_ANSWER_BYTES) or "")
    if "error" in answer:
        raise DecodingError(answer["error"])
    if sum(medium["n_bytes"] or 0 for medium in answer["media"] if medium) > max_bytes:
        raise TooLargeError
    for text, described in zip(answer["texts"], answer["media"], strict=True):
        yield DecodedPiece(text, None if described is None else _medium(described, data, answers))


def _medium(described: dict[str, Any], data: bytes, answers: BinaryIO) -> Medium:
    n_bytes = described.pop("n_bytes")
    if n_bytes is not None:
        data = answers.read(n_bytes)
        if len(data) < n_bytes:
            raise EOFError
    kind, digest = MediaKind(described.pop("kind")), bytes.fromhex(described.pop("digest"))
    return Medium(kind=kind, digest=digest, data=data, **described)

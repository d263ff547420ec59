"""Has files decoded in a process of its own, which is killed when one takes too long.

A file that crashes its decoder is refused as one that can't be decoded, and hurts no other one.
"""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, BinaryIO, cast

from deployments.media.file_types import FileKind
from deployments.media.medium import Medium
from deployments.media.settings import MediaSettings
from deployments.media_rules import MediaKind

COMMAND = (sys.executable, "-m", "deployments.media.decoder")
MAX_ANSWER_BYTES = 64 << 20  # of a line: the texts of a document
MAX_MEDIA_BYTES = 64 << 20  # that come back of one file: images of pages
# NumPy's OpenBLAS reserves memory for each of its threads, of which there are as many as cores.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
TOO_LARGE = f"has more than {MAX_MEDIA_BYTES >> 20} MiB as images of pages: send fewer pages"
BROKEN = "can't be decoded: it breaks the decoder, or needs too much memory"


class DecodingError(Exception):
    """The file is refused; the message says why."""


class TooLargeError(Exception):
    """The decoder has more to send than may come back."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file in a prompt: a page of a document has a text and may have an image."""

    text: str
    medium: Medium | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    kind: FileKind
    is_low_detail: bool = False
    with_images: bool = False  # of a document's pages, each of which is a medium
    rate: int = 0  # of a sound whose samples are wanted, and not its file; 0: the file

    def line(self, settings: MediaSettings, n_bytes: int) -> bytes:
        most = min(settings.max_pages, settings.max_media if self.with_images else inf)
        asked = {
            "kind": self.kind,
            "is_low_detail": self.is_low_detail,
            "with_images": self.with_images,
            "rate": self.rate,
            "max_pixels": settings.max_pixels,
            "max_audio_s": settings.max_audio_s,
            "max_pages": most,
            "n_bytes": n_bytes,
        }
        return json.dumps(asked).encode() + b"\n"


class DecoderProcess:
    """Used by one thread at a time. The process begins with its first job, and again after it was
    killed.
    """

    def __init__(self, settings: MediaSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[[subprocess.Popen[bytes]], DecoderProcess] | None = None

    def decode(self, job: Job, data: bytes) -> list[Piece]:
        """Blocks for the settings' `decode_timeout_s` at most. Raises DecodingError."""
        process = self._process = self._process or self._begin()
        is_late = threading.Event()
        timer = threading.Timer(self._settings.decode_timeout_s, _kill, (process, is_late))
        timer.start()
        try:
            return list(_exchange(process, job.line(self._settings, len(data)), data))
        except TooLargeError:
            self.close()
            raise DecodingError(TOO_LARGE) from None
        except (OSError, EOFError, ValueError):
            self.close()
            limit_s = self._settings.decode_timeout_s
            late = f"takes more than {limit_s:g} seconds to decode"
            raise DecodingError(late if is_late.is_set() else BROKEN) from None
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _begin(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": path, "PATH": os.defpath, **ONE_THREAD},
        )
        self._end = weakref.finalize(self, _end, process)
        return process


def _kill(process: subprocess.Popen[bytes], is_late: threading.Event) -> None:
    is_late.set()
    process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not yet written has no reader any more
                continue
    process.wait()


def _exchange(process: subprocess.Popen[bytes], line: bytes, data: bytes) -> Iterator[Piece]:
    jobs, answers = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    jobs.write(line)
    jobs.write(data)
    jobs.flush()
    answer = json.loads(answers.readline(MAX_ANSWER_BYTES) or "")
    if "error" in answer:
        raise DecodingError(answer["error"])
    if sum(one["n_bytes"] or 0 for one in answer["media"] if one) > MAX_MEDIA_BYTES:
        raise TooLargeError
    for text, described in zip(answer["texts"], answer["media"], strict=True):
        yield Piece(text, None if described is None else _medium(described, data, answers))


def _medium(described: dict[str, Any], data: bytes, answers: BinaryIO) -> Medium:
    n_bytes = described.pop("n_bytes")
    if n_bytes is not None:
        data = answers.read(n_bytes)
        if len(data) < n_bytes:
            raise EOFError
    kind, digest = MediaKind(described.pop("kind")), bytes.fromhex(described.pop("digest"))
    return Medium(kind=kind, digest=digest, data=data, **described)

"""A process that decodes files of strangers, one after the other, with bounded memory.

A job is a line of JSON and the bytes of a file, an answer a line of JSON and the bytes of its
media.
"""

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

from deployments.media.decoder_process import MAX_MEMORY_BYTES
from deployments.media.file_types import FileKind
from deployments.media.images import UnreadableError, read_image, read_pixels
from deployments.media.medium import DecodedPiece, Medium, WantedForm
from deployments.sandbox.worker import serve

NICENESS = 10


def answer_to(job: dict[str, Any], data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The answer, and the bytes that follow it: those of media that are not the file itself."""
    try:
        pieces = _decoded(job, data)
    except UnreadableError as error:
        return {"error": str(error)}, []
    except MemoryError:
        return {"error": "can't be decoded: it needs too much memory"}, []
    media = [piece.medium for piece in pieces]
    described = [None if medium is None else _described(medium, data) for medium in media]
    changed = [medium.data for medium in media if medium is not None and medium.data is not data]
    return {"texts": [piece.text for piece in pieces], "media": described}, changed


def _decoded(job: dict[str, Any], data: bytes) -> Sequence[DecodedPiece]:
    match FileKind(job["kind"]):  # most jobs are images, which need no other library
        case FileKind.IMAGE:
            return [DecodedPiece("", _image(job, data))]
        case FileKind.AUDIO:
            return [DecodedPiece("", _sound(job, data))]
        case FileKind.DOCUMENT:
            from deployments.media.documents import read_document

            return read_document(data, job["max_pages"], with_images=job["with_images"])


def _image(job: dict[str, Any], data: bytes) -> Medium:
    if job["wanted"] == WantedForm.PIXELS:
        return read_pixels(data, job["max_pixels"])
    return read_image(data, job["max_pixels"], is_low_detail=job["is_low_detail"])


def _sound(job: dict[str, Any], data: bytes) -> Medium:
    from deployments.media.sounds import model_samples, read_sound, speech_samples

    match WantedForm(job["wanted"]):
        case WantedForm.SPEECH:
            return speech_samples(data, job["max_audio_s"], job["rate"])
        case WantedForm.SAMPLES:
            return model_samples(data, job["max_audio_s"], job["rate"])
        case _:
            return read_sound(data, job["max_audio_s"])


def _described(medium: Medium, data: bytes) -> dict[str, Any]:
    return {
        "kind": medium.kind,
        "digest": medium.digest.hex(),
        "width": medium.width,
        "height": medium.height,
        "n_frames": medium.n_frames,
        "rate": medium.rate,
        "n_bytes": None if medium.data is data else len(medium.data),
    }


def answer(line: bytes, jobs: BinaryIO, answers: BinaryIO) -> None:
    job = json.loads(line)
    told, parts = answer_to(job, jobs.read(job["n_bytes"]))
    answers.write(json.dumps(told).encode() + b"\n")
    answers.writelines(parts)


if __name__ == "__main__":
    serve(answer, niceness=NICENESS, max_memory_bytes=MAX_MEMORY_BYTES)

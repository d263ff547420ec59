"""A file is what its bytes say, whatever a request declares of it."""

from typing import Any

import numpy as np
import pytest

from tests.media.files import RATE, sound, wav
from tests.media.serving import N_SOUND, SOUND, ask, base64, blind, data_url, seeing
from tests.media.test_requests import (
    CHAT,
    MESSAGES,
    PICTURE,
    RESPONSES,
    SHOWN,
    block,
    chat,
    file,
    messages,
    only,
    responses,
    shown,
)


def url(declared: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(PICTURE, declared)}}


def audio(data: bytes, declared: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64(data), "format": declared}}


FLAC = sound(np.zeros(RATE, dtype=np.int16), form="flac", codec="flac")
MISDECLARED: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": (CHAT, chat(url("image/jpeg")), SHOWN),
    "chat, of no type": (CHAT, chat(url("")), SHOWN),
    "llama-server": ("/chat/completions", chat(url("application/octet-stream")), SHOWN),
    "responses": (
        RESPONSES,
        responses({"type": "input_image", "image_url": data_url(PICTURE, "image/webp")}),
        SHOWN,
    ),
    "messages": (MESSAGES, messages(block(declared="image/jpg")), SHOWN),
    "an image as a file": (CHAT, chat(file(PICTURE)), SHOWN),
    "an image as a document": (
        MESSAGES,
        messages(block(PICTURE, "document", "application/pdf")),
        SHOWN,
    ),
    "a sound as a file": (CHAT, chat(file(wav())), f"[{SOUND * N_SOUND}]"),
    "a sound": (CHAT, chat(audio(FLAC, "mp3")), f"[{SOUND * N_SOUND}]"),
}


@pytest.mark.parametrize("name", MISDECLARED)
def test_a_file_is_what_its_bytes_say(name: str) -> None:
    path, body, expected = MISDECLARED[name]
    response, requests = ask(path, body, seeing())
    assert response.status_code == 200, response.text
    assert f"user\n{expected}<|im_end|>" in shown(only(requests))


def test_a_file_that_turns_out_to_be_an_image_is_refused_by_a_model_that_reads_text() -> None:
    response, requests = ask(CHAT, chat(file(PICTURE)), blind())
    assert (response.status_code, requests) == (400, [])
    assert "`messages[0].content[0].file` is an image; the model" in response.text

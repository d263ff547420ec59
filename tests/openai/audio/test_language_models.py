"""A language model that hears is asked in words for what is said."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from tests.ingress.engines import ScriptedEngine, says
from tests.media.files import wav
from tests.media.serving import N_SOUND, SOUND, seeing, tokenizer
from tests.openai.audio.patient import served
from tests.openai.serving import http, sdk

TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
HEARD = f"<|im_start|>user\n[{SOUND * N_SOUND}]"
SAID = " Hello there. "


def hearing(**rules: Any) -> ModelCard:
    card = seeing()
    assert card.media is not None
    assert card.media.audio is not None
    audio = replace(card.media.audio, **rules)
    return replace(card, media=replace(card.media, audio=audio))


def formed() -> ModelCard:
    """A card like Voxtral's, which was trained on prompts for transcripts."""
    return hearing(transcript_form="<s>{sound}</s>{language}[WRITE]")


def posted(
    path: str = TRANSCRIPTIONS, card: ModelCard | None = None, **fields: Any
) -> tuple[httpx.Response, list[GenerationRequest]]:
    engine = ScriptedEngine(says(SAID), card or seeing())

    async def ask() -> httpx.Response:
        async with http(served(engine)) as client:
            return await client.post(path, data=fields, files={"file": ("sound.wav", wav())})

    return asyncio.run(ask()), engine.requests


def prompt_of(requests: list[GenerationRequest]) -> str:
    [request] = requests
    assert len(request.media) == len(request.content.media) == 1
    return tokenizer().decode([*request.prompt_ids], skip_special_tokens=False)


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        (TRANSCRIPTIONS, {}, "Write down what is said"),
        (TRANSCRIPTIONS, {"language": "DE"}, "The language has the code de."),
        (TRANSCRIPTIONS, {"prompt": "Manta, Ray"}, "Before it was said: Manta, Ray"),
        (TRANSLATIONS, {}, "Say in English"),
    ],
)
def test_it_hears_the_file_and_is_told_what_to_do(
    path: str, fields: dict[str, Any], words: str
) -> None:
    response, requests = posted(path, **fields)
    body = response.json()
    assert body["text"] == SAID.strip()
    assert body["usage"]["input_tokens"] == len(requests[0].prompt_ids)
    prompt = prompt_of(requests)
    assert prompt.startswith(HEARD)
    assert words in prompt


def test_it_is_asked_in_the_form_that_it_was_trained_on() -> None:
    _, requests = posted(card=formed())
    assert prompt_of(requests) == f"<s>[{SOUND * N_SOUND}]</s>[WRITE]"
    response, requests = posted(card=formed(), language="fr")
    assert prompt_of(requests) == f"<s>[{SOUND * N_SOUND}]</s>lang:fr[WRITE]"
    assert response.json()["text"] == SAID.strip()
    _, requests = posted(TRANSLATIONS, formed())
    assert prompt_of(requests).startswith(HEARD)


def test_a_text_is_plain_and_a_stream_has_events() -> None:
    response, _ = posted(response_format="text")
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text == SAID.strip() + "\n"

    async def ask() -> list[Any]:
        async with sdk(served(ScriptedEngine(says(SAID), seeing()))) as client:
            stream = await client.audio.transcriptions.create(
                model="tiny", file=("sound.wav", wav()), stream=True
            )
            return [event async for event in stream]

    *deltas, done = asyncio.run(ask())
    assert "".join(delta.delta for delta in deltas).rstrip() == done.text == SAID.strip()
    assert done.usage.output_tokens > 0


@pytest.mark.parametrize("form", ["srt", "verbose_json"])
def test_it_has_no_times(form: str) -> None:
    response, requests = posted(response_format=form)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "response_format"
    assert "hears no times" in error["message"]
    assert not requests


@pytest.mark.parametrize(
    ("fields", "max_samples", "param"),
    [({"language": "[INST]"}, None, "language"), ({}, 9, "file")],
    ids=["language", "too long"],
)
def test_what_it_can_not_take_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], max_samples: int | None, param: str
) -> None:
    response, requests = posted(card=hearing(max_samples=max_samples), **fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert f"`{param}`" in error["message"]
    assert not requests


async def test_a_file_that_is_no_sound_is_refused() -> None:
    async with http(served(ScriptedEngine(says(SAID), seeing()))) as client:
        response = await client.post(TRANSCRIPTIONS, files={"file": ("sound.wav", b"no sound")})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "file"

"""Forms with sound: what they may ask for, and what they are told otherwise."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import numpy as np
import pytest

from deployments.contract.errors import Refused
from deployments.engine.engine import InferenceEngine
from deployments.engine.limits import ON_CPU
from deployments.openai.audio.schema import parse_transcription, parse_translation
from tests.engine.speech.spoken import wav
from tests.engine.speech.tiny_whisper import WINDOW, noise, tiny_tokenizer, tiny_whisper
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import ScriptedEngine, says
from tests.llama import serving as llama
from tests.openai.audio.patient import PATIENT, served
from tests.openai.serving import http, sdk

PATH = "/v1/audio/transcriptions"
RATE = 16_000
CUE = re.compile(r"^(\d\d:\d\d:\d\d)[,.]\d{3} --> (\d\d:\d\d:\d\d)[,.]\d{3}$", re.M)
FILE = wav(noise(1, 3 * WINDOW // 2), RATE)
GRANULARITIES = "timestamp_granularities[]"
WARM = "0.5"  # at another temperature than 0 each window is said once


@pytest.fixture(scope="module")
def engine() -> Iterator[InferenceEngine]:
    with InferenceEngine(tiny_whisper(), tiny_tokenizer(), limits=ON_CPU) as engine:
        yield engine


def played(engine: InferenceEngine) -> ScriptedEngine:
    return ScriptedEngine(engine.core.stream, engine.card)


def posted(
    played: ScriptedEngine, path: str = PATH, file: bytes | None = FILE, **fields: Any
) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with http(served(played)) as client:
            files: dict[str, Any] = {"file": ("sound.wav", file)}
            if file is None:
                files = {"response_format": (None, "json")}
            given = {"temperature": WARM, **fields}
            return await client.post(path, data=given, files=files)

    return asyncio.run(ask())


def error_of(response: httpx.Response) -> Mapping[str, str]:
    assert response.status_code == 400, response.text
    error: Mapping[str, str] = response.json()["error"]
    return error


def test_every_format_has_the_same_text(engine: InferenceEngine) -> None:
    text = posted(played(engine)).json()["text"]
    verbose = posted(played(engine), response_format="verbose_json").json()
    assert verbose["text"] == text
    assert "".join(segment["text"] for segment in verbose["segments"]).strip() == text
    plain = posted(played(engine), response_format="text")
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.text == text + "\n"
    for form in ("srt", "vtt"):
        subtitles = posted(played(engine), response_format=form).text
        assert len(CUE.findall(subtitles)) == len(verbose["segments"]) > 1
    assert subtitles.startswith("WEBVTT\n\n")


def test_the_sdk_reads_a_stream_whose_deltas_are_the_text(engine: InferenceEngine) -> None:
    async def ask() -> list[Any]:
        async with sdk(served(played(engine))) as client:
            stream = await client.audio.transcriptions.create(
                model="model", file=("sound.wav", FILE), stream=True, temperature=float(WARM)
            )
            return [event async for event in stream]

    *deltas, done = asyncio.run(ask())
    assert {delta.type for delta in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done"
    assert "".join(delta.delta for delta in deltas).strip() == done.text
    assert done.text == posted(played(engine)).json()["text"]
    assert done.usage.output_tokens > 0


def test_windows_follow_each_other_by_their_times(engine: InferenceEngine) -> None:
    verbose = posted(played(engine), response_format="verbose_json").json()
    assert verbose["duration"] == 1.5
    seeks = [segment["seek"] for segment in verbose["segments"]]
    assert seeks == sorted(seeks)
    assert len({*seeks}) > 1
    assert all(segment["seek"] / 100 <= segment["start"] + 0.02 for segment in verbose["segments"])


def test_words_have_times_within_the_sound(engine: InferenceEngine) -> None:
    fields: dict[str, Any] = {"response_format": "verbose_json", "language": "de"}
    every = posted(played(engine), **{**fields, GRANULARITIES: ["word", "segment"]}).json()
    assert len(every["words"]) >= len(every["segments"]) > 1
    assert all(word["word"] for word in every["words"])
    assert all(0 <= word["start"] <= word["end"] <= every["duration"] for word in every["words"])
    assert len({word["end"] for word in every["words"]}) > 1
    words = posted(played(engine), **{**fields, GRANULARITIES: "word"}).json()
    assert "segments" not in words
    assert words["words"] == every["words"]
    assert "words" not in posted(played(engine), **fields).json()


def test_a_model_that_does_not_say_how_words_are_timed_refuses_them() -> None:
    model = tiny_whisper()
    model.generation_config.alignment_heads = None
    with InferenceEngine(model, tiny_tokenizer(), limits=ON_CPU) as unable:
        fields: dict[str, Any] = {"response_format": "verbose_json", GRANULARITIES: "word"}
        error = error_of(posted(played(unable), **fields))
    assert error["param"] == "timestamp_granularities"


def test_lists_of_models_say_that_it_hears_and_transcribes(engine: InferenceEngine) -> None:
    async def listed(**headers: str) -> Any:
        async with http(served(played(engine))) as client:
            return (await client.get("/v1/models", headers=headers)).json()["data"]

    [model] = asyncio.run(listed())
    assert asyncio.run(listed(**{"anthropic-version": "2023-06-01"})) == []
    assert model["architecture"]["input_modalities"] == ["audio"]
    assert model["tasks"] == ["transcribe"]


def test_llama_servers_clients_have_the_same(engine: InferenceEngine) -> None:
    async def ask() -> tuple[httpx.Response, httpx.Response]:
        cluster = CountingCluster(engine.core.stream, engine.card)
        files, data = {"file": ("sound.wav", FILE)}, {"temperature": WARM}
        path = PATH.removeprefix("/v1")
        async with http(llama.served(cluster, PATIENT)) as client:
            made = await client.post(path, files=files, data=data)
            return made, await client.get("/props")

    made, props = asyncio.run(ask())
    assert made.json()["text"] == posted(played(engine)).json()["text"]
    assert props.json()["modalities"] == {"vision": False, "video": False, "audio": True}
    assert props.json()["tasks"] == ["transcribe"]


def test_a_language_is_found_out_or_taken(engine: InferenceEngine) -> None:
    found = posted(played(engine), response_format="verbose_json").json()["language"]
    assert found in ("english", "german")
    asked = played(engine)
    verbose = posted(asked, response_format="verbose_json", language="German").json()
    assert verbose["language"] == "german"
    german = engine.card.speech
    assert german is not None
    prompts = {request.prompt_ids for request in asked.requests if request.max_tokens != 0}
    assert prompts == {(german.start, dict(german.languages)["de"], german.transcribe)}


def test_a_translation_asks_the_model_to_translate(engine: InferenceEngine) -> None:
    asked = played(engine)
    verbose = posted(asked, "/v1/audio/translations", response_format="verbose_json").json()
    assert verbose["task"] == "translate"
    rules = engine.card.speech
    assert rules is not None
    assert {request.prompt_ids[-1] for request in asked.requests if request.max_tokens != 0} == {
        rules.translate
    }


def test_a_prompt_is_what_was_said_before_the_first_window(engine: InferenceEngine) -> None:
    asked = played(engine)
    posted(asked, prompt="Manta", language="en")
    rules = engine.card.speech
    assert rules is not None
    begun = [request.prompt_ids[0] for request in asked.requests if request.max_tokens != 0]
    assert begun[0] == rules.before
    assert begun[-1] == rules.start


def test_a_window_that_no_temperature_improves_is_tried_with_all(engine: InferenceEngine) -> None:
    asked = played(engine)
    posted(asked, file=wav(noise(1, WINDOW // 4), RATE), language="en", temperature="0")
    tried = [request.sampling.temperature for request in asked.requests if request.max_tokens != 0]
    assert tried[0] == 0
    assert tried == sorted(tried) or len({*tried}) > 1
    asked = played(engine)
    posted(asked, file=wav(noise(1), RATE), language="en", temperature="0.4")
    assert {
        request.sampling.temperature for request in asked.requests if request.max_tokens != 0
    } == {0.4}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "diarized_json"}, "response_format"),
        ({"temperature": "1.5"}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"language": "xx"}, "language"),
        ({GRANULARITIES: "word"}, "timestamp_granularities"),
        (
            {GRANULARITIES: "letter", "response_format": "verbose_json"},
            "timestamp_granularities[0]",
        ),
        ({"stream": "true", "response_format": "srt"}, "stream"),
        ({"include[]": "logprobs"}, "include"),
        ({"chunking_strategy": "server_vad"}, "chunking_strategy"),
        ({"wrong": "field"}, "wrong"),
        ({"wrong": ""}, "wrong"),
        ({"prompt": ["one", "two"]}, "prompt"),
    ],
)
def test_what_can_not_be_done_is_refused_by_its_name(
    engine: InferenceEngine, fields: dict[str, Any], param: str
) -> None:
    error = error_of(posted(played(engine), **fields))
    assert error["param"] == param
    assert param in error["message"]


def test_an_empty_field_is_one_that_is_not_given() -> None:
    empty = ["response_format", "temperature", "language", "prompt", "model", "stream"]
    given = {name: [""] for name in [*empty, GRANULARITIES]}
    assert parse_transcription(given) == parse_transcription({})
    assert parse_translation(given) == parse_translation({})


@pytest.mark.parametrize(("name", "kind"), [("temperature", "a number"), ("stream", "a boolean")])
def test_what_a_text_can_not_be_read_as_is_said(name: str, kind: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_transcription({name: ["0,5"]})
    assert refusal.value.error.message == f"`{name}` must be {kind}"


def form(*parts: tuple[str, bytes]) -> bytes:
    """Each with what its head says of it."""
    written = (
        b"--x\r\ncontent-disposition: form-data; %b\r\n\r\n%b\r\n" % (said.encode(), data)
        for said, data in parts
    )
    return b"".join(written) + b"--x--"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('name="file"', "can't transcribe"),  # of a model that does not hear: the form is taken
        ('name="audio"; filename="a.wav"', "`audio` must be no file: the sound goes into `file`"),
    ],
)
def test_a_file_needs_its_field_and_no_name(said: str, told: str) -> None:
    async def ask() -> httpx.Response:
        async with http(served(ScriptedEngine(says("x")))) as client:
            headers = {"content-type": "multipart/form-data; boundary=x"}
            return await client.post(PATH, content=form((said, FILE)), headers=headers)

    assert told in error_of(asyncio.run(ask()))["message"]


def test_a_translation_has_no_language(engine: InferenceEngine) -> None:
    error = error_of(posted(played(engine), "/v1/audio/translations", language="de"))
    assert error["param"] == "language"


@pytest.mark.parametrize(
    "file",
    [None, b"", b"no sound", FILE[:1000], b"\x89PNG\r\n\x1a\n" + bytes(100), FILE[:44]],
    ids=["none", "empty", "text", "cut", "image", "header"],
)
def test_a_file_that_is_no_sound_is_refused(engine: InferenceEngine, file: bytes | None) -> None:
    error = error_of(posted(played(engine), file=file))
    assert "file" in error["message"] or "form" in error["message"]


def test_a_body_that_is_no_form_is_refused(engine: InferenceEngine) -> None:
    async def ask(content: bytes, kind: str) -> int:
        async with http(served(played(engine))) as client:
            headers = {"content-type": kind}
            return (await client.post(PATH, content=content, headers=headers)).status_code

    assert asyncio.run(ask(b"{}", "application/json")) == 415
    for kind in ("multipart/form-data", "multipart/form-data; boundary=x"):
        for content in (b"", b"rubbish", b"--x\r\n\r\n", b"--y--"):
            assert asyncio.run(ask(content, kind)) == 400


def test_each_endpoint_says_which_models_it_is_for(engine: InferenceEngine) -> None:
    error = error_of(posted(ScriptedEngine(says("Hello"))))
    assert "can't transcribe" in error["message"]

    async def chat() -> httpx.Response:
        async with http(served(played(engine))) as client:
            body = {"messages": [{"role": "user", "content": "Hello"}]}
            return await client.post("/v1/chat/completions", json=body)

    assert "it transcribes sounds" in error_of(asyncio.run(chat()))["message"]


def test_silence_says_nothing_and_ends(engine: InferenceEngine) -> None:
    response = posted(played(engine), file=wav(np.zeros(WINDOW, dtype=np.int16), RATE))
    assert isinstance(json.loads(response.text)["text"], str)


def test_a_form_in_no_encoding_is_refused() -> None:
    async def ask() -> httpx.Response:
        async with http(served(ScriptedEngine(says("x")))) as client:
            kind = "multipart/form-data; charset=undefined; boundary=x"
            body = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n'
            return await client.post(PATH, content=body, headers={"content-type": kind})

    assert "can't be decoded" in error_of(asyncio.run(ask()))["message"]


def test_a_list_may_have_both_of_its_names() -> None:
    name = "timestamp_granularities"
    fields = {name: ["word"], f"{name}[]": ["segment"], "response_format": ["verbose_json"]}
    made = parse_transcription(fields)
    assert (made.has_words, made.has_segments) == (True, True)

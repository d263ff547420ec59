"""Transcripts of a real engine, as OpenAI's SDK asks for them."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import _decode_asr

from deployments.engine.engine import InferenceEngine
from deployments.media.sounds import Resampler
from tests.engine.speech.converted import tiny_en
from tests.engine.speech.spoken import SENTENCES, speak, wav
from tests.ingress.engines import ScriptedEngine
from tests.media.files import sound
from tests.openai.audio.patient import served
from tests.openai.serving import sdk

MAX_WORSE = 0.05  # of word error rates
N_SENTENCES = 2
TICK_S = 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_en(tmp_path_factory.mktemp("tiny.en"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[InferenceEngine]:
    with InferenceEngine(str(folder), dtype=torch.float32) as engine:
        yield engine


def played(engine: InferenceEngine) -> ScriptedEngine:
    return ScriptedEngine(engine.core.stream, engine.card)


def words(text: str) -> list[str]:
    return re.sub(r"[^\w\s']", " ", text.lower()).split()


def error_rate(found: str, expected: str) -> float:
    """Words that are wrong, missing or too many, for each word that was said."""
    due, said = words(expected), words(found)
    costs = [*range(len(said) + 1)]
    for row, word in enumerate(due, start=1):
        before, costs[0] = costs[0], row
        for at, other in enumerate(said, start=1):
            before, costs[at] = (
                costs[at],
                min(costs[at] + 1, costs[at - 1] + 1, before + (word != other)),
            )
    rate: float = costs[-1] / len(due)
    return rate


def at_16_khz(samples: np.ndarray[Any, Any], rate: int) -> np.ndarray[Any, Any]:
    resampler = Resampler(rate, 16_000)
    parts = [resampler.push((samples / 32768).astype(np.float32)), resampler.end()]
    return np.concatenate(parts)


@dataclass(frozen=True)
class Spoken:
    """Some sentences, and what transformers makes of them.

    words: of the first window, each with when it begins and ends, in seconds. Later windows have
    other features there: slices of the whole sound's.
    """

    file: bytes
    said: str
    text: str
    words: Sequence[tuple[str, float, float]]


@pytest.fixture(scope="module")
@torch.inference_mode()
def spoken(folder: Path) -> Spoken:
    samples, rate = speak(SENTENCES[:N_SENTENCES])
    model: Any = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    made = WhisperFeatureExtractor()(
        at_16_khz(samples, rate),
        sampling_rate=16_000,
        return_tensors="pt",
        return_attention_mask=True,
    )
    found = model.generate(
        made.input_features,
        attention_mask=made.attention_mask,
        return_timestamps=True,
        return_token_timestamps=True,
        return_segments=True,
    )
    tokenizer = WhisperTokenizer.from_pretrained(folder)
    text = tokenizer.decode(found["sequences"][0], skip_special_tokens=True)
    said = " ".join(SENTENCES[:N_SENTENCES])
    first = found["segments"][0][0]
    return Spoken(wav(samples, rate), said, text, timed_words(tokenizer, first))


def timed_words(tokenizer: Any, segment: Any) -> list[tuple[str, float, float]]:
    output = {name: segment[name][None] for name in ("tokens", "token_timestamps")}
    _, timed = _decode_asr(
        tokenizer, [output], return_timestamps="word", return_language=False, time_precision=TICK_S
    )
    return [(chunk["text"].strip(), *chunk["timestamp"]) for chunk in timed["chunks"]]


@pytest.fixture(scope="module")
def made(engine: InferenceEngine, spoken: Spoken) -> Any:
    granularities = ["word", "segment"]
    return transcribed(
        engine,
        spoken.file,
        response_format="verbose_json",
        timestamp_granularities=granularities,
    )


def transcribed(engine: InferenceEngine, file: bytes, **fields: Any) -> Any:
    async def ask() -> Any:
        async with sdk(served(played(engine))) as client:
            return await client.audio.transcriptions.create(
                model="model", file=("sound", file), **fields
            )

    return asyncio.run(ask())


def test_a_transcript_is_as_good_as_that_of_transformers(made: Any, spoken: Spoken) -> None:
    theirs = error_rate(spoken.text, spoken.said)
    assert error_rate(made.text, spoken.said) <= theirs + MAX_WORSE
    assert made.text == "".join(segment.text for segment in made.segments).strip()


def test_words_are_heard_when_transformers_hears_them(made: Any, spoken: Spoken) -> None:
    assert len(made.words) == len(made.text.split())
    first = made.words[: len(spoken.words)]
    assert [word.word for word in first] == [word for word, _, _ in spoken.words]
    found = np.array([(word.start, word.end) for word in first])
    expected = np.array([times for _, *times in spoken.words])
    assert np.abs(found - expected).max() <= TICK_S + 1e-6


@pytest.mark.exhaustive
def test_three_minutes_are_transcribed_to_their_end(engine: InferenceEngine) -> None:
    samples, rate = speak()
    n = 180 * rate // len(samples) + 1
    file = sound(np.tile(samples, n), rate, "flac", "flac")
    made = transcribed(engine, file, response_format="verbose_json")
    assert made.duration > 180
    assert error_rate(made.text, " ".join(SENTENCES * n)) < 0.25
    segments = made.segments
    assert [segment.start for segment in segments] == sorted(segment.start for segment in segments)
    assert segments[-1].end > 170
    assert all(segment.start <= segment.end <= made.duration + 0.01 for segment in segments)

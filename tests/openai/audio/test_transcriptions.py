"""Transcripts of a real engine, as OpenAI's SDK asks for them."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, WhisperFeatureExtractor, WhisperForConditionalGeneration

from deployments.engine.engine import InferenceEngine
from deployments.media.speech_samples import Resampler
from tests.engine.speech.converted import tiny_en
from tests.engine.speech.spoken import SENTENCES, speak, wav
from tests.ingress.engines import ScriptedEngine
from tests.openai.serving import sdk, served

MAX_WORSE = 0.05  # of word error rates


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
    return costs[-1] / len(due)


@torch.inference_mode()
def by_transformers(folder: Path, samples: np.ndarray[Any, Any], rate: int) -> str:
    resampler = Resampler(rate, 16_000)
    parts = [resampler.push(samples.astype(np.float32) / 32768), resampler.end()]
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    features = WhisperFeatureExtractor()(
        np.concatenate(parts), sampling_rate=16_000, return_tensors="pt"
    )
    ids = model.generate(features.input_features, return_timestamps=True)
    text: str = AutoTokenizer.from_pretrained(folder).decode(ids[0], skip_special_tokens=True)
    return text


def transcribed(engine: InferenceEngine, file: bytes, **fields: Any) -> Any:
    async def ask() -> Any:
        async with sdk(served(played(engine))) as client:
            return await client.audio.transcriptions.create(
                model="model", file=("sound", file), **fields
            )

    return asyncio.run(ask())


def test_a_transcript_is_as_good_as_that_of_transformers(
    folder: Path, engine: InferenceEngine
) -> None:
    samples, rate = speak()
    made = transcribed(engine, wav(samples, rate))
    said = " ".join(SENTENCES)
    theirs = error_rate(by_transformers(folder, samples, rate), said)
    assert error_rate(made.text, said) <= theirs + MAX_WORSE
    assert made.usage.type == "duration"


def test_three_minutes_are_transcribed_to_their_end(engine: InferenceEngine) -> None:
    samples, rate = speak()
    n = 180 * rate // len(samples) + 1
    file = wav(np.tile(samples, n), rate, "FLAC")
    made = transcribed(engine, file, response_format="verbose_json")
    assert made.duration > 180
    assert error_rate(made.text, " ".join(SENTENCES * n)) < 0.25
    segments = made.segments
    assert [one.start for one in segments] == sorted(one.start for one in segments)
    assert segments[-1].end > 170
    assert all(one.start <= one.end <= made.duration + 0.01 for one in segments)

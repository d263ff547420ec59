"""Vectors, ranks and decisions of a real engine with a tiny random generator, over HTTP."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deployments.contract.model_card import ModelCard
from deployments.ingress.metrics import Metrics
from deployments.openai.routes import app
from tests.engine.drive import Engine, engine
from tests.llama.serving import send
from tests.llama.test_engine import CARD, RealCluster
from tests.openai.pooling import decoded
from tests.openai.serving import http

TEXTS = ["Hello, hello", "hello", "Hello, hello, hello"]
Floats = NDArray[np.float64]


class Pooling(RealCluster):
    def __init__(self, running: Engine, card: ModelCard) -> None:
        super().__init__(running)
        self.cards = {card.name: card}


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    with engine() as running:
        yield running


def known(running: Engine, **kinds: Any) -> ModelCard:
    return replace(CARD, answers=replace(running.core.outputs.kinds, **kinds))


def native(running: Engine, **fields: object) -> list[Floats]:
    cluster = Pooling(running, known(running))
    response = asyncio.run(send(cluster, "POST", "/embedding", json=fields))
    assert response.status_code == 200, response.text
    return [np.array(entry["embedding"]) for entry in response.json()]


def openai(running: Engine, path: str, body: object, **kinds: Any) -> Any:
    async def ask() -> Any:
        async with http(app(Pooling(running, known(running, **kinds)), Metrics())) as client:
            response = await client.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    return asyncio.run(ask())


def test_a_mean_is_that_of_the_vectors_of_all_tokens(running: Engine) -> None:
    tokens = native(running, content=TEXTS, pooling="none")
    assert [len(vectors) for vectors in tokens] == [len(text) for text in TEXTS]
    means = native(running, content=TEXTS, pooling="mean", embd_normalize=-1)
    lasts = native(running, content=TEXTS, pooling="last", embd_normalize=-1)
    for each, mean, last in zip(tokens, means, lasts, strict=True):
        assert np.abs(each.mean(0) - mean[0]).max() < 1e-5
        assert np.abs(each[-1] - last[0]).max() < 1e-5


@pytest.mark.parametrize("norm", [0, 1, 2, 3])
def test_vectors_have_the_norm_that_is_asked_for(running: Engine, norm: int) -> None:
    [[vector]] = native(running, content="Hello", pooling="last", embd_normalize=norm)
    size = np.abs(vector).max() / 32760 if norm == 0 else np.linalg.norm(vector, norm)
    assert size == pytest.approx(1, abs=1e-5)


def test_dimensions_are_the_first_numbers_and_base64_is_all_of_them(running: Engine) -> None:
    def embedded(**fields: object) -> list[Any]:
        body = {"input": TEXTS, "pooling": "mean", **fields}
        return [entry["embedding"] for entry in openai(running, "/v1/embeddings", body)["data"]]

    plain = embedded()
    assert [decoded(encoded) for encoded in embedded(encoding_format="base64")] == plain
    for cut, whole in zip(embedded(dimensions=5), plain, strict=True):
        first = np.array(whole[:5])
        assert np.abs(np.array(cut) - first / np.linalg.norm(first)).max() < 1e-6


def test_it_judges_and_decides_by_its_next_token(running: Engine) -> None:
    body = {"query": "Hello", "documents": TEXTS}
    kinds = {"score_token_ids": (72, 101)}
    results = openai(running, "/v1/rerank", body, **kinds)["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < scores[0] < 1
    question = {"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": "b"}]}
    answer = openai(running, "/v1/decisions", {"input": "Hello", "questions": [question] * 3})
    first, *others = answer["answers"]
    assert sum(option["probability"] for option in first["probabilities"]) == pytest.approx(1)
    for other in others:
        assert other["confidence"] == pytest.approx(first["confidence"], abs=1e-6)

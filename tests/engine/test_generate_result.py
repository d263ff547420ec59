"""A result that one thread fills and any may wait for, as callers that use threads rely on it."""

import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch

from deployments.contract.errors import Refused
from deployments.engine.engine import InferenceEngine
from deployments.engine.generate_result import GenerateResult, Piece
from deployments.engine.limits import EngineLimits
from tests.checkpoints import save_checkpoint

PROMPTS = ["Once upon a time", "x"]
LIMITS = EngineLimits(n_pages=256, page_size=4, max_running=8, context_length=256)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InferenceEngine]:
    checkpoint: Path = save_checkpoint(tmp_path_factory.mktemp("model"))
    with InferenceEngine(str(checkpoint), dtype=torch.float32, limits=LIMITS) as running:
        yield running


def read_all(result: GenerateResult, n: int) -> list[str]:
    texts = [""] * n
    while pieces := result.wait():
        for index, text in pieces:
            texts[index] += text
    return texts


def test_a_result_its_stream_and_its_callback_give_the_text_of_generate(
    engine: InferenceEngine,
) -> None:
    expected = engine.generate(PROMPTS, seed=3, max_tokens=30, ignore_eos=True)
    heard: list[str] = []
    result = engine.submit(PROMPTS, heard.append, seed=3, max_tokens=30, ignore_eos=True)
    assert read_all(result, 2) == expected
    assert result.wait_completion() == expected
    assert sorted("".join(heard)) == sorted("".join(expected))
    alone = engine.submit(PROMPTS[0], seed=3, max_tokens=30, ignore_eos=True)
    assert alone.wait_completion() == expected[:1]


def test_a_prompt_that_can_not_be_served_raises_where_it_is_waited_for(
    engine: InferenceEngine,
) -> None:
    result = engine.submit("x" * 300)
    with pytest.raises(Refused):
        result.wait_completion()
    with pytest.raises(Refused):
        result.wait()


def test_waiting_ends_with_its_time() -> None:
    may_go_on = threading.Event()

    def pieces() -> Generator[Piece, None, None]:
        yield 0, "a"
        may_go_on.wait()
        yield 0, "b"

    result = GenerateResult(1, pieces())
    assert result.wait() == [(0, "a")]
    assert result.wait(timeout=0) == []
    with pytest.raises(TimeoutError):
        result.wait_completion(timeout=0)
    may_go_on.set()
    assert result.wait_completion() == ["ab"]
    assert result.wait() == [(0, "b")]
    assert result.wait() == []


def test_a_callback_that_raises_ends_the_generation() -> None:
    left = threading.Event()

    def pieces() -> Generator[Piece, None, None]:
        try:
            while True:
                yield 0, "a"
        finally:
            left.set()

    def fail(_: str) -> None:
        raise ValueError("of the callback")

    result = GenerateResult(1, pieces(), fail)
    with pytest.raises(ValueError, match="of the callback"):
        result.wait_completion()
    assert left.wait(10)

"""A transcript's tokens are heard when transformers hears them, whatever runs beside."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.whisper.generation_whisper import _dynamic_time_warping

from deployments.contract.errors import ErrorKind
from deployments.contract.outputs import AlignParams
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.engine import InferenceEngine
from deployments.engine.forward.cross_attention import extractor_of
from deployments.engine.limits import ON_CPU
from deployments.engine.outputs.alignment import first_states
from deployments.engine.outputs.vectors import unpack
from tests.effort import tries
from tests.engine.speech.tiny_whisper import (
    MAX_TOKENS,
    WINDOW,
    noise,
    sound_request,
    started,
    tiny_tokenizer,
    tiny_whisper,
)

N_SAMPLES = (WINDOW, WINDOW - 77, 9_000, 500)  # the last has two encoder states
PROMPT = (2, 3, 4)
TICK_S = 0.02


class Outputs(SimpleNamespace):
    """The outputs of transformers' generation, as its own reader of times takes them."""

    def __contains__(self, name: str) -> bool:
        return name in vars(self)


def transcript(number: int) -> tuple[int, ...]:
    random = np.random.default_rng(number)
    n = (MAX_TOKENS - len(PROMPT), 17, 2, 1)[number]
    return tuple(random.integers(10, 200, n).tolist())


@torch.inference_mode()
def by_transformers(number: int) -> list[float]:
    """Returns transformers' times of a transcript's tokens, in seconds."""
    model: Any = tiny_whisper()
    model.set_attn_implementation("eager")
    samples = noise(number, N_SAMPLES[number])
    made = extractor_of(model.config)(
        samples.astype(np.float32) / 32768,
        sampling_rate=16_000,
        return_tensors="pt",
        return_attention_mask=True,
    )
    ids = torch.tensor([[*PROMPT, *transcript(number)]])
    found = model(made.input_features, decoder_input_ids=ids, output_attentions=True)
    times = model._extract_token_timestamps(
        Outputs(cross_attentions=[found.cross_attentions], sequences=ids),
        model.generation_config.alignment_heads,
        num_frames=int(made.attention_mask.sum()),
        num_input_ids=len(PROMPT),
    )
    aligned: list[float] = times[0, len(PROMPT) : -1].tolist()
    return aligned


@pytest.fixture(scope="module")
def expected() -> Sequence[Sequence[float]]:
    return [by_transformers(number) for number in range(len(N_SAMPLES))]


def to_align(number: int) -> GenerationRequest:
    return sound_request(
        noise(number, N_SAMPLES[number]),
        (*PROMPT, *transcript(number)),
        max_tokens=0,
        output=AlignParams(n_before=len(PROMPT)),
        sampling=SamplingParams(),
    )


def aligned(
    engine: InferenceEngine, requests: Sequence[GenerationRequest]
) -> dict[int, Sequence[float]]:
    """Returns the times in seconds by the number of the request, for those that ask for them."""
    found: dict[int, Sequence[float]] = {}
    for index, event in engine.core.run(requests):
        assert event.error is None, event.error
        if event.vectors is not None:
            [ticks] = unpack(event.vectors)
            found[index] = (ticks * TICK_S).tolist()
    return found


def same(found: dict[int, Sequence[float]], expected: Sequence[Sequence[float]]) -> bool:
    return all(
        len(found[n]) == len(times) and np.allclose(found[n], times, atol=1e-4)
        for n, times in enumerate(expected)
    )


def test_each_alone_is_heard_when_transformers_hears_it(
    engine: InferenceEngine, expected: Sequence[Sequence[float]]
) -> None:
    assert len({*expected[0]}) > 5
    for number, times in enumerate(expected):
        assert same(aligned(engine, [to_align(number)]), [times])


def test_all_at_once_beside_others_are_heard_as_alone(
    engine: InferenceEngine, expected: Sequence[Sequence[float]]
) -> None:
    others = [sound_request(noise(seed), PROMPT) for seed in range(3)]
    requests = [*map(to_align, range(len(N_SAMPLES))), *others]
    assert same(aligned(engine, requests), expected)


def test_chunks_and_preemption_change_nothing(expected: Sequence[Sequence[float]]) -> None:
    limits = replace(ON_CPU, max_batch_tokens=8, max_running=4, n_pages=20, page_size=4)
    with started(limits) as engine:
        others = [sound_request(noise(seed), PROMPT) for seed in range(3)]
        requests = [*map(to_align, range(len(N_SAMPLES))), *others]
        assert same(aligned(engine, requests), expected)
        assert engine.core.stats().preemptions > 0


def test_a_model_that_names_no_heads_refuses(engine: InferenceEngine) -> None:
    model = tiny_whisper()
    model.generation_config.alignment_heads = None
    with InferenceEngine(model, tiny_tokenizer(), limits=ON_CPU) as unable:
        [(_, event)] = unable.core.run([to_align(1)])
    assert event.error is not None
    assert event.error.kind is ErrorKind.NOT_SUPPORTED
    n = len(PROMPT) + len(transcript(1))
    wrong = replace(to_align(1), output=AlignParams(n_before=n))
    [(_, event)] = engine.core.run([wrong])
    assert event.error is not None
    assert event.error.param == "n_before"


@pytest.mark.parametrize("seed", range(tries(10, 200)))
def test_warping_takes_the_path_of_transformers(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=tuple(random.integers(1, 30, 2).tolist())).astype(np.float32)
    tokens, states = _dynamic_time_warping(-scores.astype(np.float64))
    first = [int(states[tokens == token][0]) for token in range(len(scores))]
    assert first_states(scores).tolist() == first

"""A model that transcribes says what transformers says, whatever runs beside it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import (
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest
from deployments.engine.core import EngineCore
from deployments.engine.engine import InferenceEngine
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.cross_attention import extractor_of
from deployments.engine.forward.linear import PackedLinear, is_packable
from deployments.engine.limits import ON_CPU
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.media.speech import speech_rules, split_speech
from deployments.engine.needs.speech import SpeechNeed
from kv.content import Content
from tests.engine import laws
from tests.engine.drive import Engine, Outcome
from tests.engine.speech.tiny_whisper import (
    MAX_TOKENS,
    WINDOW,
    noise,
    sound_request,
    started,
    tiny_tokenizer,
    tiny_whisper,
)
from tests.engine.workload import Workload, beside

SEEDS = range(6)
IDS = tiny_tokenizer().get_vocab()
END = IDS["<|endoftext|>"]
PROMPT = tuple(IDS[name] for name in ("<|startoftranscript|>", "<|en|>", "<|transcribe|>"))


@torch.inference_mode()
def by_transformers(samples: NDArray[np.int16]) -> Outcome:
    """One window, by the plain loop of transformers with its own rules for times."""
    model = tiny_whisper()
    extractor = extractor_of(model.config)
    floats = samples.astype(np.float32) / 32768
    features = extractor(floats, sampling_rate=16_000, return_tensors="pt").input_features
    own: Any = model.generation_config
    n = len(PROMPT)
    rules = LogitsProcessorList(
        [
            SuppressTokensAtBeginLogitsProcessor(own.begin_suppress_tokens, n),
            SuppressTokensLogitsProcessor(own.suppress_tokens),
            WhisperTimeStampLogitsProcessor(own, begin_index=n),
        ]
    )
    ids = torch.tensor([PROMPT])
    encoded = model.model.encoder(features)
    while ids.shape[1] < MAX_TOKENS and ids[0, -1] != END:
        logits = model(encoder_outputs=encoded, decoder_input_ids=ids).logits[:, -1]
        ids = torch.cat([ids, rules(ids, logits).argmax(-1, keepdim=True)], dim=1)
    said = tuple(ids[0, n:].tolist())
    if said[-1] == END:
        return Outcome(said, (), FinishReason.STOP, END)
    return Outcome(said, (), FinishReason.LENGTH)


def said(engine: InferenceEngine, requests: Sequence[GenerationRequest]) -> list[tuple[int, ...]]:
    ids: list[tuple[int, ...]] = [()] * len(requests)
    for index, event in engine.core.run(requests):
        assert event.error is None, event.error
        ids[index] += event.token_ids
    return ids


def request_of(engine: InferenceEngine, samples: NDArray[np.int16]) -> GenerationRequest:
    assert engine.card.speech is not None
    return sound_request(samples, PROMPT, engine.card.speech.transcript)


@cache
def workload() -> Workload:
    rules = speech_rules(speaking(), tiny_tokenizer())
    assert rules is not None
    sounds = [noise(seed) for seed in SEEDS]
    return Workload(
        requests=[sound_request(sound, PROMPT, rules.transcript) for sound in sounds],
        reference=lambda: [*map(by_transformers, sounds)],
        model=speaking,
        eos=frozenset({END}),
        limits=ON_CPU,
        come=Engine.run_at_once,
        few_pages=[{"max_batch_tokens": 4, "max_running": 4, "n_pages": 20, "page_size": 4}],
        cuts=(1, 2, 9),
    )


def speaking() -> LoadedModel:
    return split_speech(LoadedModel(tiny_whisper()))


@pytest.mark.parametrize(
    "law",
    [
        laws.alone_is_as_the_reference_says,
        laws.preempted_is_undisturbed,  # in chunks
        laws.failed_over_is_undisturbed,
    ],
)
def test_law(law: laws.Law) -> None:
    law(workload())


def test_batched_is_alone() -> None:
    laws.batched_is_alone(beside(workload(), workload()))


def test_sounds_differ() -> None:
    assert len({outcome.token_ids for outcome in workload().undisturbed}) > 1


def test_a_sound_that_was_just_transcribed_is_not_encoded_again(engine: InferenceEngine) -> None:
    samples, other = noise(20), noise(21)
    [need] = (need for need in engine.core._needs if isinstance(need, SpeechNeed))
    first = said(engine, [request_of(engine, samples)])
    assert need.sound_of(request_of(engine, samples)).features is None
    assert need.sound_of(request_of(engine, other)).features is not None
    salted = replace(request_of(engine, samples), content=content_with_salt(samples))
    assert need.sound_of(salted).features is not None
    assert said(engine, [request_of(engine, samples)]) == first


def test_few_sounds_are_remembered_and_the_others_are_encoded_again() -> None:
    with started(replace(ON_CPU, max_running=2)) as engine:
        requests = [request_of(engine, noise(seed)) for seed in (*SEEDS, *SEEDS)]
        once, again = said(engine, requests[: len(SEEDS)]), said(engine, requests[len(SEEDS) :])
        assert once == again
        [need] = (need for need in engine.core._needs if isinstance(need, SpeechNeed))
        kept = [need.sound_of(request).features is None for request in requests[: len(SEEDS)]]
        assert sum(kept) == 2


def content_with_salt(samples: NDArray[np.int16]) -> Content:
    return replace(sound_request(samples, PROMPT).content, salt="another client")


@pytest.mark.parametrize("limits", [{"max_loras": 1}, {"draft_tokens": 4}])
def test_what_can_not_be_had_beside_a_sound_stops_the_start(limits: dict[str, Any]) -> None:
    model = speaking()
    draft = model if "draft_tokens" in limits else None
    with pytest.raises(UnsupportedModelError, match="transcribes"):
        EngineCore(model, frozenset(), replace(ON_CPU, **limits), draft=draft)


def test_what_has_no_sound_is_refused(engine: InferenceEngine) -> None:
    [(_, event)] = engine.core.run([GenerationRequest(request_id="text", prompt_ids=PROMPT)])
    assert event.error is not None
    assert event.error.kind is ErrorKind.INVALID_REQUEST
    assert "transcribes sounds" in event.error.message


def test_a_sound_longer_than_the_window_is_refused(engine: InferenceEngine) -> None:
    [(_, event)] = engine.core.run([request_of(engine, noise(0, WINDOW + 1))])
    assert event.error is not None
    assert "32000 bytes" in event.error.message


def test_a_model_that_is_kept_serves_one_engine_after_the_other() -> None:
    kept = speaking()
    said_by_each = []
    for _ in range(2):
        with InferenceEngine(kept, tiny_tokenizer(), limits=ON_CPU) as engine:
            said_by_each.append(said(engine, [request_of(engine, noise(seed)) for seed in SEEDS]))
    assert said_by_each[0] == said_by_each[1]
    assert len(kept.model.model.decoder._forward_pre_hooks) == 1


@pytest.mark.skipif(
    not is_packable(torch.nn.Linear(16, 16, dtype=torch.bfloat16)),
    reason="no fast product of bfloat16 here",
)
def test_the_encoder_is_packed_as_the_decoder_is() -> None:
    model = split_speech(LoadedModel(tiny_whisper().to(torch.bfloat16)))
    assert model.speech is not None
    EngineCore(model, frozenset(), ON_CPU).shutdown()
    for part in (model.model, model.speech):
        assert any(isinstance(module, PackedLinear) for module in part.modules())

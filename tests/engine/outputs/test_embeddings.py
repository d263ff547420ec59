"""Vectors are those of transformers, whatever else is computed beside them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from deployments.contract.events import merge
from deployments.contract.outputs import Pooling, PoolParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.sentence_files import SentenceFiles
from deployments.engine.outputs.vectors import unpack
from kv.content import Content
from tests.encoders import (
    BY_LENGTH,
    DECODERS,
    ENCODERS,
    hidden_states,
    pooled,
    random_prompts,
    tiny_embedder,
)
from tests.engine import laws
from tests.engine.drive import Engine, engine, request, roomy
from tests.engine.outputs.drive import ALIKE, EXACT, answers, ask, embedder
from tests.engine.workload import Workload
from tests.models import tiny_model


@pytest.mark.parametrize("architecture", [*ENCODERS, *DECODERS])
def test_vectors_are_those_of_transformers_alone_and_among_others(architecture: str) -> None:
    ids, others = random_prompts(1, 40)[0], random_prompts(64, 40, seed=1)
    model = tiny_embedder(architecture)
    expected = hidden_states(model, ids)
    whole = [ask(kind, ids, PoolParams(pooling=kind)) for kind in Pooling]
    beside = [ask(f"other {n}", token_ids) for n, token_ids in enumerate(others)]
    with embedder(model) as running:
        among = answers(running.core, *beside[:32], *whole, *beside[32:])[32:-32]
        for kind, req, found in zip(Pooling, whole, among, strict=True):
            np.testing.assert_allclose(found, pooled(expected, kind), **EXACT)
            np.testing.assert_allclose(answers(running.core, req)[0], found, **ALIKE)
        if architecture in ENCODERS:
            way = running.core.execution.encoder
            assert way is not None
            assert way.is_flat == (architecture not in BY_LENGTH)


@pytest.mark.parametrize("kind", Pooling)
@pytest.mark.parametrize("architecture", ["qwen3", "mistral", "gemma3"])
def test_in_chunks_and_after_a_prefix_a_vector_is_what_it_is_at_once(
    architecture: str, kind: Pooling
) -> None:
    ids = tuple(range(3, 93))
    model = tiny_embedder(architecture)
    expected = pooled(hidden_states(model, ids), kind)
    one = ask("one", ids, PoolParams(pooling=kind))
    with embedder(model, limits=roomy(max_batch_tokens=16, max_running=4)) as running:
        for _ in range(2):  # the second time all but its last page is cached
            [found] = answers(running.core, one)
            np.testing.assert_allclose(found, expected, **EXACT)


def test_a_last_token_goes_on_behind_what_is_cached_and_a_mean_does_not() -> None:
    ids = tuple(range(3, 93))
    with embedder(tiny_embedder("qwen3")) as running:
        for kind, cached in ((Pooling.LAST, 88), (Pooling.MEAN, 0)):
            one = ask("one", ids, PoolParams(pooling=kind))
            answers(running.core, one)
            *_, (_, last) = running.core.run([one])
            assert last.cached_tokens == cached


@pytest.mark.parametrize(("own", "is_normalized"), [(Pooling.TOKEN, True), (Pooling.MEAN, False)])
def test_vectors_of_tokens_are_normalized_where_they_are_the_models_own(
    own: Pooling, is_normalized: bool
) -> None:
    ids = tuple(range(3, 23))
    model = tiny_embedder("bert")
    states = hidden_states(model, ids)
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    asked = [ask(str(kind), ids, PoolParams(pooling=kind)) for kind in (Pooling.TOKEN, None)]
    with embedder(model, files=SentenceFiles(pooling=own, normalizes=True)) as running:
        named, unnamed = answers(running.core, *asked)
    np.testing.assert_allclose(named, unit if is_normalized else states, **EXACT)
    if own is Pooling.TOKEN:
        np.testing.assert_array_equal(unnamed, named)


@pytest.mark.parametrize("kind", [Pooling.MEAN, Pooling.TOKEN])
def test_preempted_is_undisturbed(kind: Pooling) -> None:
    grows = request("grows", (5, 6, 7), max_tokens=60)
    asked = ask(kind, range(3, 63), PoolParams(pooling=kind))
    laws.preempted_is_undisturbed(
        Workload(
            requests=[grows, replace(asked, priority=1)],
            model=lambda: tiny_model("qwen3"),
            come=Engine.run_at_once,
            tolerance=EXACT["atol"],
            few_pages=[{"n_pages": 24, "max_batch_tokens": 2, "max_running": 2}],
        )
    )


@pytest.mark.parametrize("architecture", ["bert", "nomic_bert"])
def test_a_pair_of_texts_has_types(architecture: str) -> None:
    model, ids = tiny_embedder(architecture), random_prompts(1, 40)[0]
    expected, single = hidden_states(model, ids, second_at=3), hidden_states(model, ids)
    assert not np.allclose(expected, single)
    asked = ask("pair", ids, second_at=3), ask("single", ids)
    with embedder(model, pooling=Pooling.CLS) as running:
        found, other = answers(running.core, *asked)
    np.testing.assert_allclose(found, expected[:1], **EXACT)
    np.testing.assert_allclose(other, single[:1], **EXACT)


def test_a_model_that_talks_embeds_too_in_the_same_steps() -> None:
    model, ids = tiny_model("qwen3"), tuple(range(3, 50))
    expected = hidden_states(model, ids)
    talk = request("talk", (4, 5, 6), max_tokens=20)
    with engine(model=model) as running:
        [alone] = running.run(talk)
        asked = [ask(kind, ids, PoolParams(pooling=kind)) for kind in Pooling]
        events = [*running.core.run([talk, *asked])]
        said = merge([event for index, event in events if index == 0])
        assert said.token_ids == alone.token_ids
        for index, kind in enumerate(Pooling, 1):
            found = merge([event for at, event in events if at == index]).vectors
            assert found is not None
            np.testing.assert_allclose(unpack(found), pooled(expected, kind), **EXACT)


def test_pooling_tasks_of_other_salts_share_no_pages() -> None:
    ids = tuple(range(3, 93))
    with embedder(tiny_embedder("qwen3")) as running:
        for salt in ("a", "b"):
            one = ask("one", ids, content=Content(salt=salt))
            *_, (_, last) = running.core.run([one])
            assert last.cached_tokens == 0


def test_a_pooling_task_that_comes_to_no_numbers_fails_alone() -> None:
    model = tiny_embedder("bert")
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = float("nan")
    good, bad = ask("good", (3, 4, 5)), ask("bad", (3, 7, 5))
    with embedder(model) as running:
        events = dict(running.core.run([good, bad, ask("next", (3, 4, 5))]))
        assert events[1].error is not None
        assert "not finite" in events[1].error.message
        first, last = events[0].vectors, events[2].vectors
        assert first is not None
        assert last is not None
        np.testing.assert_allclose(unpack(first), unpack(last), **ALIKE)


def test_an_encoder_takes_no_adapters_of_requests() -> None:
    starting = embedder(tiny_embedder("bert"), limits=roomy(max_loras=1))
    with pytest.raises(UnsupportedModelError, match="max_loras: an encoder"), starting:
        pass

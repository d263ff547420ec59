"""The engine on a GPU says what it says on a CPU."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.core import EngineCore
from deployments.engine.forward.forward import DecoderForward
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import finish_weights
from tests.engine.adapters.test_laws import LIMITS as LIMITS_OF_ADAPTERS
from tests.engine.adapters.test_laws import make_adapters, merging, rows
from tests.engine.drive import drop_graphs, engine, roomy
from tests.engine.sampling.test_samplers_laws import workload
from tests.engine.scheduler.repeating import every_repeating, repeating
from tests.engine.scheduler.test_head_drafter import DRAFTING, FREE, drafted
from tests.heads import bigram, knowing_head
from tests.models import CONFIGS, VOCAB, alike, forgetful, tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


LIMITS = EngineLimits(page_size=4, n_pages=200, max_running=8, max_batch_tokens=16)


def generate(architecture: str, device: str, limits: EngineLimits = LIMITS) -> list[list[int]]:
    model = tiny_model(architecture).to(device)
    finish_weights(model, device)
    core = EngineCore(LoadedModel(model), frozenset(), limits)
    generator = torch.Generator().manual_seed(1)
    requests = [
        GenerationRequest(
            request_id=f"{length} at {temperature}",
            prompt_ids=tuple(torch.randint(0, VOCAB, (length,), generator=generator).tolist()),
            sampling=SamplingParams(temperature=temperature, top_k=20, top_p=0.9, seed=length),
            max_tokens=30,
        )
        for length in (3, 17, 40, 90)
        for temperature in (0.0, 0.8)
    ]
    produced: list[list[int]] = [[] for _ in requests]
    for index, event in core.run(requests):
        assert event.error is None
        produced[index].extend(event.token_ids)
    core.shutdown()
    return produced


@pytest.mark.parametrize("architecture", CONFIGS)
def test_tokens_on_a_gpu_are_those_on_a_cpu(architecture: str) -> None:
    assert generate(architecture, "cuda") == generate(architecture, "cpu")


@every_repeating
def test_drafted_tokens_are_those_on_a_cpu(name: str) -> None:
    with engine(model=forgetful().to("cuda"), limits=roomy(draft_tokens=5)) as running:
        outcomes = running.run_together(*repeating(name).requests)
        assert running.core.stats().accepted_tokens > 0
    repeating(name).check(outcomes)


@every_repeating
def test_what_a_draft_model_drafts_is_that_on_a_cpu(name: str) -> None:
    model, draft = forgetful().to("cuda"), alike(forgetful()).to("cuda")
    limits = roomy(draft_tokens=5, draft_min=1)
    with engine(model=model, draft=draft, limits=limits) as running:
        outcomes = running.run_together(*repeating(name).requests)
        assert running.core.stats().accepted_tokens > 0
    repeating(name).check(outcomes)


def test_what_a_head_drafts_is_that_on_a_cpu() -> None:
    """CUDA graphs give it what it reads of the model's layers."""
    expected = drafted(FREE)
    model, head = bigram().to("cuda"), knowing_head(bigram()).to("cuda")
    with engine(model=model, draft=head, limits=roomy(**DRAFTING)) as running:
        outcomes = running.run_together(*expected.requests)
        stats = running.core.stats()
    expected.check(outcomes)
    assert stats.accepted_tokens > stats.drafted_tokens / 2


@pytest.mark.parametrize("name", ["mirostat 1", "mirostat 2", "dry", "window", "thinking"])
def test_what_is_sampled_behind_a_launch_is_as_on_a_cpu(name: str) -> None:
    """The logits wait in the memory of a CUDA graph until the token before them is known."""
    with engine(model=tiny_model().to("cuda"), limits=roomy(async_scheduling=True)) as running:
        workload(name).check(running.run_at_once(*workload(name).requests))


def test_steps_with_adapters_are_captured(tmp_path: Path) -> None:
    """The steps have rows with several adapters, and rows with none."""
    adapters = make_adapters(tmp_path)
    many = merging(rows(adapters))
    with engine(model=tiny_model().to("cuda"), limits=LIMITS_OF_ADAPTERS) as running:
        forward = running.core._scheduler._runner._forward
        assert isinstance(forward, DecoderForward)
        assert forward._graphs is not None
        assert len({key.has_adapters for key in forward._graphs._replays}) == 2
        many.check(running.run_together(*many.requests))
        drop_graphs(running.core)
        many.check(running.run_together(*many.requests))


def test_keys_and_values_of_one_byte_take_half_the_memory_of_two() -> None:
    model = LoadedModel(tiny_model().to("cuda", torch.bfloat16))
    execution = find_execution(model)
    one, two = (
        cache_shape(model, execution, EngineLimits(max_running=10**6, kv_gib=0.01, kv_dtype=kind))
        for kind in ("fp8", "auto")
    )
    assert one.n_pages // 2 == two.n_pages
    produced = generate("llama", "cuda", replace(LIMITS, kv_dtype="fp8"))
    assert [len(tokens) for tokens in produced] == [30] * 8

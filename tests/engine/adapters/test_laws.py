"""A row with adapters has the tokens of the model that they were merged into, whatever is beside
it; a row without keeps its bits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.lora import merge_adapters
from kv.content import Adapter
from tests.adapters import make_adapter
from tests.engine import laws
from tests.engine.drive import Engine, Outcome, engine, random_ids, request, roomy
from tests.engine.workload import Workload
from tests.models import alike, forgetful, tiny_model

N_ADAPTERS, N_ROWS, N_NEW = 8, 32, 12
PERIOD = N_ADAPTERS + 1
SAMPLINGS = (
    SamplingParams(temperature=0, logprobs=2),
    SamplingParams(temperature=2, seed=3, logprobs=1),
)
# Not the layers of experts, and not those that keep a state.
LAYERS = (
    *("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.qkv_proj"),
    *("mlp.gate_up_proj", "mlp.down_proj", "shared_expert.up_proj"),
)
LIMITS = roomy(max_loras=N_ADAPTERS, max_running=N_ROWS, max_batch_tokens=64, n_pages=1024)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Adapter]:
    return make_adapters(tmp_path_factory.mktemp("adapters"))


def make_adapters(folder: Path) -> list[Adapter]:
    """Makes adapters of several ranks; the last one is of some layers alone."""
    model = tiny_model()
    made = [
        make_adapter(folder / str(i), model, seed=i, rank=(1, 4, 7, 16)[i % 4])
        for i in range(N_ADAPTERS - 1)
    ]
    targets = ("layers.1.self_attn.k_proj", "layers.2.mlp.up_proj")
    return [*made, make_adapter(folder / "some", model, seed=9, targets=targets)]


def rows(adapters: Sequence[Adapter]) -> list[GenerationRequest]:
    """One of each PERIOD has no adapter, the others have each another one. Prompts of some are
    equal."""
    return [
        request(
            f"r{i}",
            random_ids(5 + i % 3, seed=i // 4),
            SAMPLINGS[i % 2],
            max_tokens=N_NEW,
            adapters=adapters[i % PERIOD - 1 :][:1] if i % PERIOD else [],
        )
        for i in range(N_ROWS)
    ]


@cache
def merged(one: GenerationRequest, make: Callable[[], PreTrainedModel] = tiny_model) -> Outcome:
    """Returns the outcome of a request alone, on a model with its adapters merged."""
    model = make()
    adapters = [(adapter.path, adapter.scale) for adapter in one.content.adapters]
    merge_adapters(LoadedModel(model), adapters)
    plain = replace(one, content=replace(one.content, adapters=()))
    with engine(model=model) as running:
        return running.run(plain)[0]


def merging(
    requests: Sequence[GenerationRequest], make: Callable[[], PreTrainedModel] = tiny_model
) -> Workload:
    return Workload(
        requests=requests,
        reference=lambda: [merged(req, make) for req in requests],
        model=make,
        limits=LIMITS,
        come=Engine.run_in_one_batch,
        tolerance=1e-3,
        chunks=[{"max_batch_tokens": 33}],
        few_pages=[{"n_pages": 48}, {"max_loras": 1, "n_pages": 12, "lora_cache_mib": 1}],
        cuts=(5,),
        ahead={"max_loras": 3},
    )


@pytest.mark.parametrize(
    "law",
    [
        laws.chunked_is_whole,
        laws.a_hit_is_no_hit,  # in one step: the adapters are loaded then
        laws.preempted_is_undisturbed,
        laws.failed_over_is_undisturbed,
        laws.launched_ahead_is_in_turns,
    ],
)
def test_law(law: laws.Law, adapters: list[Adapter]) -> None:
    law(merging(rows(adapters)))


def test_rows_differ_by_adapter(adapters: list[Adapter]) -> None:
    requests = rows(adapters)
    assert {req.content.adapters for req in requests} == {(), *((adapter,) for adapter in adapters)}
    assert len({merged(req).token_ids for req in requests}) > N_ROWS // 2


def test_adapters_take_turns_where_a_step_has_room_for_few(adapters: list[Adapter]) -> None:
    workload = merging(rows(adapters))
    with workload.engine(max_loras=2) as running:
        workload.check_on(running)
        assert running.core.stats().preemptions == 0


def test_a_draft_model_without_adapters_drafts_for_rows_that_have_some(
    adapters: list[Adapter],
) -> None:
    requests = rows([replace(adapter, scale=0.05) for adapter in adapters])[:4]
    workload = replace(
        merging(requests),
        draft=lambda: alike(tiny_model()),
        drafting={"draft_tokens": 3, "draft_min": 1},
        n_accepted=1,
    )
    laws.drafted_is_plain(workload)
    laws.each_accepted_token_saves_a_step(workload)


def test_a_row_without_an_adapter_keeps_its_bits(adapters: list[Adapter]) -> None:
    """Computed in the same steps: a GPU's products of more rows may have other bits."""
    requests = merging(rows(adapters)).apart()
    plain = [replace(req, content=replace(req.content, adapters=())) for req in requests]
    with engine(limits=LIMITS) as running:
        running.run(*rows(adapters))  # which loads the adapters
        beside = running.run_in_one_batch(*requests)
    with engine(limits=LIMITS) as running:
        alone = running.run_in_one_batch(*plain)
    for i, (ours, theirs) in enumerate(zip(beside, alone, strict=True)):
        assert (ours == theirs) == (i % PERIOD == 0)


def test_a_prefix_is_found_by_those_of_the_same_adapter_alone(adapters: list[Adapter]) -> None:
    prompt = random_ids(13)
    requests = [
        request("r", prompt, max_tokens=4, adapters=own)
        for own in ([], adapters[:1], adapters[1:2], [replace(adapters[0], scale=0.5)])
    ]
    laws.a_hit_is_no_hit(merging(requests))


def test_an_adapter_is_the_same_by_another_path(adapters: list[Adapter]) -> None:
    paths = [adapters[0].path + end for end in ("", "/.")]
    requests = [
        request("r", random_ids(13), adapters=[replace(adapters[0], path=path)]) for path in paths
    ]
    with engine(limits=LIMITS) as running:
        first, again = (running.run(req)[0] for req in requests)
    assert again == replace(first, cached_tokens=12)


def test_drafted_is_plain(adapters: list[Adapter]) -> None:
    prompt = random_ids(4) * 3
    requests = [request("r", prompt, max_tokens=40, adapters=own) for own in ([], adapters[7:])]
    laws.drafted_is_plain(
        replace(merging(requests, forgetful), drafting={"draft_tokens": 4}, n_accepted=2)
    )


def test_adapters_of_one_request_add_up(adapters: list[Adapter]) -> None:
    both = [replace(adapters[0], scale=-0.5), replace(adapters[1], scale=2.0), adapters[7]]
    zero = [replace(adapters[2], scale=0.0)]
    requests = [
        request(f"r{i}", random_ids(6), max_tokens=N_NEW, adapters=own)
        for i, own in enumerate((both, [*both, *zero], zero, []))
    ]
    with engine(limits=replace(LIMITS, max_loras=1)) as running:
        outcomes = running.run_at_once(*requests)
    merging(requests).check(outcomes)
    assert outcomes[0].token_ids == outcomes[1].token_ids != outcomes[2].token_ids
    assert outcomes[2].token_ids == outcomes[3].token_ids


@pytest.mark.parametrize(
    "architecture", ["qwen3", "gemma2", "qwen2_moe", "phi3_longrope", "qwen3_next"]
)
def test_other_models_take_adapters_too(architecture: str, tmp_path: Path) -> None:
    model = tiny_model(architecture)
    own = [make_adapter(tmp_path / str(i), model, seed=i, targets=LAYERS) for i in range(2)]
    requests = [
        request(f"r{i}", random_ids(7), max_tokens=N_NEW, adapters=own[i : i + 1]) for i in range(3)
    ]
    workload = merging(requests, partial(tiny_model, architecture))
    with workload.engine() as running:
        outcomes = running.run_at_once(*requests)
    workload.check(outcomes)
    assert len({result.token_ids for result in outcomes}) == 3

"""A draft head changes how many steps a sequence takes, and nothing of what comes of it. It reads
what the model computes in the same steps, and stores it in the same pages."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from deployments.contract.outputs import Pooling, PoolParams
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.draft_check import check_draft
from deployments.engine.loading.draft_heads.draft_head import LoadedHead
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.text.grammar.grammar import from_regex
from tests.adapters import make_adapter
from tests.effort import tries
from tests.engine import laws
from tests.engine.drive import engine, random_ids, request, roomy
from tests.engine.scheduler.repeating import PROMPTS
from tests.engine.workload import Workload
from tests.heads import (
    as_llama,
    bigram,
    head_tensors,
    knowing_head,
    random_head,
)
from tests.models import tiny_model
from tests.mtp_heads import (
    CONFIGS_WITH_HEADS,
    knowing_mtp,
    mtp_bigram,
    random_mtp,
)

# So flat that n-grams hardly ever come again: the head drafts.
FREE = SamplingParams(temperature=2.5, seed=1, logprobs=1)
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0),
    "cool": SamplingParams(temperature=0.7, seed=3),
    "warm": SamplingParams(temperature=1, seed=4, top_k=20, frequency_penalty=0.3),
    "free": FREE,
}
DRAFTING = {"draft_tokens": 5, "draft_min": 1}
WORDS = from_regex("([a-f]{3}-)*", "")


def drafted(
    sampling: SamplingParams,
    model: Callable[[], object] = bigram,
    head: Callable[[], LoadedHead] = lambda: knowing_head(bigram()),
    **changes: object,
) -> Workload:
    plain = Workload(
        requests=[
            request(f"r{i}", prompt, sampling, max_tokens=50 - i)
            for i, prompt in enumerate((*PROMPTS, random_ids(2, seed=5)))
        ],
        model=model,
        few_pages=[{"n_pages": 26, "max_batch_tokens": 16}],
        failing=(8, 11, 14),
    )
    plain = replace(plain, **changes)  # type: ignore[arg-type]
    return replace(plain.on(), draft=head, drafting=DRAFTING)


def drafted_by_mtp(
    family: str, sampling: SamplingParams = FREE, *, knows: bool = True, **changes: object
) -> Workload:
    model, make = partial(mtp_bigram, family), knowing_mtp if knows else random_mtp
    return drafted(sampling, model, lambda: make(model(), family), **changes)


BY_KIND: dict[str, Callable[..., Workload]] = {
    "eagle": drafted,
    "mtp": partial(drafted_by_mtp, "mimo"),
}
of_each_kind = pytest.mark.parametrize("draft", BY_KIND.values(), ids=BY_KIND)


@of_each_kind
@pytest.mark.parametrize("name", SAMPLINGS)
def test_drafted_is_plain(name: str, draft: Callable[..., Workload]) -> None:
    laws.drafted_is_plain(replace(draft(SAMPLINGS[name]), n_accepted=4))


LAWS = (
    *(laws.batched_is_alone, laws.chunked_is_whole, laws.a_hit_is_no_hit),
    *(laws.preempted_is_undisturbed, laws.failed_over_is_undisturbed),
)


@of_each_kind
@pytest.mark.parametrize("law", LAWS)
def test_law_where_a_head_drafts(law: laws.Law, draft: Callable[..., Workload]) -> None:
    law(draft(FREE).on(**DRAFTING))


def test_a_failed_step_changes_nothing_of_what_a_head_drafts() -> None:
    laws.a_failed_step_changes_nothing(drafted(FREE).on(**DRAFTING))


@pytest.mark.parametrize("law", [laws.chunked_is_whole, laws.a_hit_is_no_hit])
def test_law_where_an_mtp_head_drafts_beside_states(law: laws.Law) -> None:
    requests = [request(f"{n}", random_ids(n), FREE, max_tokens=9) for n in (21, 25)]
    law(drafted_by_mtp("qwen3_5", requests=requests).on(**DRAFTING))


@pytest.mark.parametrize("family", CONFIGS_WITH_HEADS)
def test_the_mtp_head_of_each_family_drafts(family: str) -> None:
    requests = [request(f"{n}", random_ids(n), FREE, max_tokens=12) for n in (19, 7)]
    workload = drafted_by_mtp(family, requests=requests, tolerance=1e-3)
    laws.drafted_is_plain(replace(workload, n_accepted=2))


def test_an_mtp_head_that_knows_nothing_changes_nothing() -> None:
    """Beside states, of which that behind the first token of each step is the right one."""
    requests = [request(f"{n}", random_ids(n), FREE, max_tokens=20) for n in (9, 14)]
    workload = drafted_by_mtp("qwen3_5", knows=False, requests=requests, n_drafted=2)
    laws.drafted_is_plain(workload)


def test_an_mtp_head_drafts_for_rows_with_grammars_and_adapters(tmp_path: Path) -> None:
    path = make_adapter(tmp_path / "a", mtp_bigram("mimo"), seed=1, rank=4)
    requests = [
        request("adapted", random_ids(9), FREE, max_tokens=20, adapters=[path]),
        request("words", random_ids(5), FREE, max_tokens=20, grammar=WORDS),
    ]
    limits = roomy(max_loras=1)
    laws.drafted_is_plain(drafted_by_mtp("mimo", requests=requests, limits=limits, n_drafted=2))


def test_steps_are_launched_ahead_while_it_drafts_nothing() -> None:
    """Nothing is drafted by measure before some plain steps were timed."""
    laws.launched_ahead_is_in_turns(drafted(FREE).on(draft_tokens=5))


@pytest.mark.parametrize("has_own", [True, False])
def test_a_head_that_knows_is_right_at_any_temperature(has_own: bool) -> None:
    """It may have no embeddings and no last matrix, but read those of the model."""
    one = request("a", random_ids(9), FREE, max_tokens=61)
    head = knowing_head(bigram(), has_own=has_own)
    with engine(model=bigram(), draft=head, limits=roomy(**DRAFTING)) as running:
        [outcome] = running.run(one)
        stats = running.core.stats()
    assert stats.accepted_tokens == stats.drafted_tokens == outcome.accepted_tokens
    assert stats.steps == 1 + 60 / 6
    assert stats.drafts == 10
    assert stats.accepted_by_position == [10] * 5


def test_a_head_that_is_always_wrong_changes_nothing_but_time() -> None:
    one = request("a", random_ids(9), FREE, max_tokens=40)
    with engine() as running:
        expected = running.run(one)[0].token_ids
    never = min({*range(128)} - {*expected})
    tensors = head_tensors(as_llama(draft_vocab_size=1), "embed_tokens")
    head = random_head(tensors=tensors | {"d2t": torch.tensor([never])}, draft_vocab_size=1)
    with engine(draft=head, limits=roomy(**DRAFTING)) as running:
        assert running.run(one)[0].token_ids == expected
        stats = running.core.stats()
    assert stats.accepted_tokens == 0
    assert stats.drafted_tokens > 100
    assert stats.steps == 40


@pytest.mark.parametrize(
    "one",
    [
        request("words", random_ids(5), FREE, max_tokens=40, grammar=WORDS),
        request("scored", random_ids(30), replace(FREE, logprobs=2), prompt_logprobs=1),
        request("stopped", random_ids(30), FREE, max_tokens=60, stop_token_ids=range(8)),
        request("of one token", (7,), FREE),
    ],
    ids=lambda one: one.request_id,
)
def test_what_else_is_read_of_tokens_is_plain(one: GenerationRequest) -> None:
    laws.drafted_is_plain(drafted(FREE, requests=[one], n_drafted=1))


@pytest.mark.parametrize(
    "architecture", ["gemma3", "qwen3_next", *tries((), ("deepseek_v3", "gpt_oss", "gemma4"))]
)
def test_it_drafts_for_layers_of_any_kind(architecture: str) -> None:
    requests = [request(f"{n}", random_ids(n), FREE, max_tokens=20) for n in (30, 7)]
    model = partial(tiny_model, architecture)
    workload = drafted(FREE, model, random_head, requests=requests, tolerance=1e-3)
    laws.drafted_is_plain(replace(workload, n_drafted=1))


def test_it_drafts_for_rows_with_adapters(tmp_path: Path) -> None:
    path = make_adapter(tmp_path / "a", bigram(), seed=1, rank=4)
    requests = [
        request("plain", random_ids(9), FREE, max_tokens=30),
        request("adapted", random_ids(9), FREE, max_tokens=30, adapters=[path]),
    ]
    workload = drafted(FREE, requests=requests, limits=roomy(max_loras=1), n_drafted=2)
    first, second = workload.undisturbed
    assert first.token_ids != second.token_ids
    laws.drafted_is_plain(workload)


@of_each_kind
def test_it_drafts_beside_rows_that_want_vectors(draft: Callable[..., Workload]) -> None:
    wanted = replace(
        request("vector", random_ids(9), max_tokens=0), output=PoolParams(pooling=Pooling.LAST)
    )
    both = [wanted, request("text", random_ids(12), FREE, max_tokens=30)]
    laws.drafted_is_plain(draft(FREE, requests=both))


def test_its_pages_count() -> None:
    model = LoadedModel(tiny_model())
    execution, limits = find_execution(model), roomy(n_pages=None, kv_gib=2**-14)
    alone = cache_shape(model, execution, limits)
    both = cache_shape(model, execution, limits, draft=check_draft(random_head(), model))
    assert len(both.layout) == len(alone.layout) + 1
    assert both.n_pages < alone.n_pages


REFUSED: dict[str, tuple[Callable[[], LoadedHead], str]] = {
    "states of size 24": (lambda: random_head(target_hidden_size=24), "llama"),
    "made for 512 tokens": (lambda: random_head(vocab_size=512), "llama"),
    r"layers \[1, 2, 7\] of the model": (
        lambda: random_head(eagle_aux_hidden_state_layer_ids=[1, 2, 7]),
        "llama",
    ),
    "row by row": (random_head, "diffllama"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_head_of_another_model_is_refused(reason: str) -> None:
    head, architecture = REFUSED[reason]
    with (
        pytest.raises(UnsupportedModelError, match=reason),
        engine(architecture, draft=head(), limits=roomy(**DRAFTING)),
    ):
        pass

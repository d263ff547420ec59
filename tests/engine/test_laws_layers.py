"""The output of layers of every kind depends on the request alone, as with keys that stay."""

from dataclasses import replace
from functools import cache, partial

import pytest

from deployments.contract.requests import SamplingParams
from deployments.engine.forward.recurrent import can_keep_states
from tests.engine import laws
from tests.engine.drive import Engine, engine, random_ids, request, roomy
from tests.engine.workload import Workload
from tests.models import STATES, forgetful, tiny_model

needs_states = pytest.mark.skipif(not can_keep_states(), reason="needs a newer transformers")
# Windows beside full attention, in six groups; windows alone; latents. Then those with states:
# gated delta nets beside attention; Mamba 2; Mamba 1, whose layers can't go on in a chunk; short
# convolutions.
KINDS = ("gemma3", "mistral", "deepseek_v3")
KINDS_OF_STATES = tuple(pytest.param(name, marks=needs_states) for name in STATES)
# Of these few laws are always tried: windows that tumble; latents that an index chooses.
PARTS = ("llama4", "glm_moe_dsa")
# Heads that differ by layer; distances; row by row. With states: lightning attention; row by row.
MORE_STATELESS = ("gemma4", "falcon", "diffllama")
MORE_STATES = ("minimax", "rwkv", "recurrent_gemma")


def exhaustively(*names: str) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


def of_kinds(*kinds: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("architecture", kinds)


more = exhaustively(*MORE_STATELESS, *MORE_STATES)
every_kind = of_kinds(*KINDS, *KINDS_OF_STATES, *exhaustively(*PARTS), *more)
with_parts = of_kinds(*KINDS, *PARTS, *KINDS_OF_STATES, *more)
every_state = of_kinds(*KINDS_OF_STATES, *exhaustively(*MORE_STATES))
also_by_rows = of_kinds(
    *KINDS, *KINDS_OF_STATES, "diffllama", "rwkv", *exhaustively("gemma4", "recurrent_gemma")
)
SAMPLING = SamplingParams(temperature=2, seed=3, logprobs=1)
LONG = random_ids(45)  # longer than all windows
PROMPTS = (LONG, LONG[:32] + random_ids(3, seed=2), random_ids(2, seed=4))
REQUESTS = [request(f"r{i}", prompt, SAMPLING, max_tokens=14) for i, prompt in enumerate(PROMPTS)]
ROOMY = roomy(n_pages=1024)
SMALL_STEPS = {"max_running": 3, "max_batch_tokens": 5}


@cache
def workload(architecture: str) -> Workload:
    return Workload(
        requests=REQUESTS,
        model=partial(tiny_model, architecture),
        limits=ROOMY,
        tolerance=1e-3,
        chunks=[SMALL_STEPS],
        cuts=(5,),
        ahead=SMALL_STEPS,
    )


def growing(architecture: str) -> Workload:
    """All three have no pages for their ends at once."""
    n_pages = {"gemma3": 68, "gemma4": 46, "llama4": 52, "mistral": 18}.get(architecture, 16)
    prompts = [random_ids(20 + i, seed=7 + i) for i in range(3)]
    return replace(
        workload(architecture),
        requests=[request("r", prompt, SAMPLING, max_tokens=20) for prompt in prompts],
        few_pages=[{"n_pages": n_pages, "max_running": 4, "max_batch_tokens": 8}],
    )


def repeating(architecture: str) -> Workload:
    samplings = [
        SamplingParams(temperature=heat, seed=n, logprobs=1)
        for n, heat in ((5, 0), (6, 0.3), (7, 0.5))
    ]
    return replace(
        workload(architecture),
        model=partial(forgetful, architecture),
        requests=[
            request("r", random_ids(sampling.seed) * 9, sampling, max_tokens=40)
            for sampling in samplings
        ],
        n_drafted=1,
    )


@with_parts
@pytest.mark.parametrize(
    "law",
    [
        laws.batched_is_alone,
        laws.chunked_is_whole,
        laws.a_hit_is_no_hit,
        laws.failed_over_is_undisturbed,
        laws.launched_ahead_is_in_turns,
    ],
)
def test_law(law: laws.Law, architecture: str) -> None:
    law(workload(architecture))


@with_parts
def test_preempted_is_undisturbed(architecture: str) -> None:
    laws.preempted_is_undisturbed(growing(architecture))


@every_kind
def test_drafted_is_plain(architecture: str) -> None:
    """Drafts that are wrong were written to pages that are soon freed out of a window, and a state
    can't be cut back: there is one behind each token."""
    laws.drafted_is_plain(repeating(architecture))


@needs_states
@of_kinds("qwen3_next", "mamba2")
def test_a_wrong_draft_costs_no_step(architecture: str) -> None:
    """Prompts are computed in one step where no checkpoint is kept."""
    without_boundaries = repeating(architecture).on(ctx_checkpoints=0)
    laws.each_accepted_token_saves_a_step(without_boundaries)


@also_by_rows
def test_a_failed_step_changes_nothing(architecture: str) -> None:
    """A step is one call of the model, or one for each row and token where it is run so."""
    laws.a_failed_step_changes_nothing(workload(architecture).on(async_scheduling=False))


@every_kind
def test_a_step_that_fails_ahead_of_its_turn_changes_nothing(architecture: str) -> None:
    steps = (1, 4, 60 if architecture == "recurrent_gemma" else 13)  # different ones
    ahead = workload(architecture).on(max_batch_tokens=16, async_scheduling=True)
    laws.a_failed_step_changes_nothing(replace(ahead, failing=steps))


@every_kind
def test_where_two_prompts_part_a_third_one_finds_their_beginning(architecture: str) -> None:
    third = request("r", LONG[:32] + random_ids(9, seed=5), max_tokens=1)
    with workload(architecture).engine() as running:
        workload(architecture).check([running.run(req)[0] for req in REQUESTS])
        (found,) = running.run(third)
    assert found.cached_tokens == 32


def conversation(running: Engine, n_turns: int) -> list[float]:
    """The cached share of each turn's prompt: all that was said before, and a question."""
    shares, ids = [], random_ids(200)
    for turn in range(n_turns):
        (answer,) = running.run(request(f"turn {turn}", ids, max_tokens=12))
        shares.append(answer.cached_tokens / len(ids))
        ids += answer.token_ids + random_ids(8, seed=turn)
    return shares


@every_state
def test_a_conversation_is_cached_where_states_are_kept(architecture: str) -> None:
    limits = replace(ROOMY, page_size=16)
    with engine(architecture, limits=limits) as running:
        first, *others = conversation(running, 10)
        assert first == 0
        assert min(others) >= 0.9
        stats = running.core.stats()
        assert stats.checkpoints_restored == len(others)
        assert stats.checkpoint_bytes > 0
    with engine(architecture, limits=replace(limits, ctx_checkpoints=0)) as running:
        assert conversation(running, 2) == [0, 0]


@every_state
def test_another_last_message_finds_what_is_before_it(architecture: str) -> None:
    prompt = LONG[:34] + random_ids(9, seed=6)
    alone = request("alone", prompt, SAMPLING, cache_salt="alone")
    with workload(architecture).engine() as running:
        (expected,) = running.run(alone)
        running.run(replace(REQUESTS[0], message_starts=(34,)))
        (found,) = running.run(request("other", prompt, SAMPLING))
    assert found.token_ids == expected.token_ids
    assert found.cached_tokens == 32


@every_state
def test_many_streams_in_room_for_few_are_as_alone(architecture: str) -> None:
    prompts = [LONG[: 16 + i % 3 * 8] + (i,) for i in range(64)]
    many = replace(
        workload(architecture),
        requests=[request("r", prompt, SAMPLING, max_tokens=6) for prompt in prompts],
    )
    with many.engine(n_pages=16 * 11, max_running=16, ctx_checkpoints=1) as running:
        many.check(running.run_together(*many.requests))


@every_state
def test_the_least_recently_used_state_goes_first(architecture: str) -> None:
    with workload(architecture).engine(max_running=1, ctx_checkpoints=2) as running:
        for req in REQUESTS:
            running.run(req)
        assert running.core.stats().checkpoints == 2
        workload(architecture).check([running.run(req)[0] for req in REQUESTS])


@every_state
def test_what_many_begin_with_is_computed_once(architecture: str) -> None:
    """The same prompt at the same time, and others that part from it: they wait for its state."""
    same = [request(f"s{i}", LONG, replace(SAMPLING, seed=i), max_tokens=5) for i in range(3)]
    parting = request("p", LONG[:32] + random_ids(7, seed=9), SAMPLING, max_tokens=5)
    many = replace(workload(architecture), requests=[*same, parting])
    with many.engine(max_batch_tokens=16, max_running=8) as running:
        together = running.run_in_one_batch(*many.requests)
    many.check(together)
    assert [outcome.cached_tokens for outcome in together] == [0, 44, 44, 32]

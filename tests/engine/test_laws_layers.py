"""The output of layers of every kind depends on the request alone, as with keys that stay."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import count

import pytest
from torch import nn

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.forward.recurrent import can_keep_states
from tests.engine.drive import Engine, Outcome, engine, random_ids, request, roomy
from tests.models import STATES, forgetful, tiny_model

needs_states = pytest.mark.skipif(not can_keep_states(), reason="needs a newer transformers")
# Windows beside full attention, in six groups; windows alone; latents. Then those with states:
# gated delta nets beside attention; Mamba 2; Mamba 1, whose layers can't go on in a chunk; short
# convolutions.
KINDS = ("gemma3", "mistral", "deepseek_v3")
KINDS_OF_STATES = tuple(pytest.param(name, marks=needs_states) for name in STATES)
# Heads that differ by layer; row by row, without states and with them.
MORE_STATELESS = ("gemma4", "diffllama")
BY_ROWS = ("rwkv", "recurrent_gemma")
STATELESS = (*KINDS, *MORE_STATELESS)


def exhaustively(*names: str) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


def of_kinds(*kinds: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("architecture", kinds)


every_kind = of_kinds(*KINDS, *KINDS_OF_STATES, *exhaustively(*MORE_STATELESS, *BY_ROWS))
every_state = of_kinds(*KINDS_OF_STATES, *exhaustively(*BY_ROWS))
also_by_rows = of_kinds(
    *KINDS, *KINDS_OF_STATES, "diffllama", "rwkv", *exhaustively("gemma4", "recurrent_gemma")
)
N_NEW = 14
SAMPLING = SamplingParams(temperature=2, seed=3, logprobs=1)
LONG = random_ids(45)  # longer than all windows
PROMPTS = (LONG, LONG[:32] + random_ids(3, seed=2), random_ids(2, seed=4))
REQUESTS = [
    request(f"r{i}", prompt, SAMPLING, max_tokens=N_NEW) for i, prompt in enumerate(PROMPTS)
]


@cache
def undisturbed(architecture: str) -> list[Outcome]:
    alone = [replace_salt(req, req.request_id) for req in REQUESTS]
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        return [running.run(req)[0] for req in alone]


def replace_salt(one: GenerationRequest, salt: str) -> GenerationRequest:
    return replace(one, content=replace(one.content, salt=salt))


def check(outcomes: list[Outcome], architecture: str, skipped: int = 0) -> None:
    for outcome, expected in zip(outcomes, undisturbed(architecture), strict=True):
        assert outcome.token_ids == expected.token_ids[skipped:]
        logprobs = [entry.logprob for entry in expected.logprobs[skipped:]]
        assert [entry.logprob for entry in outcome.logprobs] == pytest.approx(logprobs, abs=1e-3)


@every_kind
def test_batched_is_alone(architecture: str) -> None:
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        check(running.run_together(*REQUESTS), architecture)


@every_kind
def test_chunked_is_whole(architecture: str) -> None:
    limits = roomy(n_pages=1024, max_running=3, max_batch_tokens=5)
    with engine(architecture, limits=limits) as running:
        check(running.run_together(*REQUESTS), architecture)


@every_kind
def test_a_hit_is_no_hit(architecture: str) -> None:
    """A beginning alone is hit too where two prompts part: the first to come computes it."""
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        first = [running.run(req)[0] for req in REQUESTS]
        check(first, architecture)
        branch = replace(REQUESTS[1], prompt_ids=LONG[:32] + random_ids(9, seed=5))
        (third,) = running.run(branch)
        assert third.cached_tokens == 32
        again = running.run_together(*REQUESTS)
        check(again, architecture)
        assert [outcome.cached_tokens for outcome in again] == [44, 32, 0]


@every_kind
def test_preempted_is_undisturbed(architecture: str) -> None:
    """Layers with states go on from the last page whose state was kept."""
    alike = [
        request(f"r{i}", random_ids(20 + i, seed=7 + i), SAMPLING, max_tokens=20) for i in range(3)
    ]
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        expected = [running.run(req)[0].token_ids for req in alike]
    n_pages = {"gemma3": 68, "gemma4": 46, "mistral": 18}.get(architecture, 16)
    limits = roomy(n_pages=n_pages, max_running=4, max_batch_tokens=8)
    with engine(architecture, limits=limits) as running:
        assert [outcome.token_ids for outcome in running.run_together(*alike)] == expected
        stats = running.core.stats()
        assert stats.preemptions > 0
        assert stats.checkpoints_restored > 0 or architecture in STATELESS


@every_kind
def test_launched_ahead_is_in_turns(architecture: str) -> None:
    """Chunks are launched ahead too. A launch that fails so is repeated, and is no failed step."""
    limits = roomy(n_pages=1024, max_running=3, max_batch_tokens=5, async_scheduling=True)
    with engine(architecture, limits=limits) as running:
        check(running.run_together(*REQUESTS), architecture)
    calls = (1, 4, 60 if architecture == "recurrent_gemma" else 13)  # of different steps
    with failing(architecture, *calls, max_batch_tokens=16, async_scheduling=True) as running:
        check(running.run_in_one_batch(*REQUESTS), architecture)
        assert running.core.stats().failed_steps == 2


@contextmanager
def failing(architecture: str, *calls: int, **limits: float | None) -> Iterator[Engine]:
    """An engine whose model fails at these calls, when all behind them is written. A step is one
    call, or one for each row and token where the model is run so."""
    model, number = tiny_model(architecture), count()

    def fail(module: nn.Module, args: object) -> None:
        if next(number) in calls:
            raise ValueError("a fault")

    with engine(architecture, model=model, limits=roomy(n_pages=1024, **limits)) as running:
        model.get_output_embeddings().register_forward_pre_hook(fail)
        yield running


@also_by_rows
def test_a_failed_step_changes_nothing(architecture: str) -> None:
    with failing(architecture, 1, 6, 13, async_scheduling=False) as running:
        check(running.run_in_one_batch(*REQUESTS), architecture)
        assert running.core.stats().failed_steps == 3


@every_kind
def test_failed_over_is_undisturbed(architecture: str) -> None:
    known = [outcome.token_ids[:5] for outcome in undisturbed(architecture)]
    rest = [replace(req, produced_ids=ids) for req, ids in zip(REQUESTS, known, strict=True)]
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        check(running.run_together(*rest), architecture, skipped=5)


@every_kind
def test_drafted_is_plain(architecture: str) -> None:
    """Drafts that are wrong were written to pages that are soon freed out of a window, and a state
    can't be cut back: what was right before them is computed again."""
    repeating = [
        request(f"r{n}", random_ids(n) * 9, SamplingParams(temperature=heat, seed=n), max_tokens=40)
        for n, heat in ((5, 0), (6, 0.3), (7, 0.5))
    ]
    model = forgetful(architecture)
    with engine(model=model, limits=roomy(n_pages=1024)) as running:
        plain = [running.run(req)[0].token_ids for req in repeating]
    with engine(model=model, limits=roomy(n_pages=1024, draft_tokens=5)) as running:
        assert [outcome.token_ids for outcome in running.run_together(*repeating)] == plain
        assert running.core.stats().drafted_tokens > 0


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
    limits = roomy(n_pages=1024, page_size=16, context_length=None)
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
    first = replace(REQUESTS[0], message_starts=(34,))
    other = request("other", LONG[:34] + random_ids(9, seed=6), SAMPLING, max_tokens=N_NEW)
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        (alone,) = running.run(replace_salt(other, "alone"))
        running.run(first)
        (found,) = running.run(other)
    assert found.token_ids == alone.token_ids
    assert found.cached_tokens == 32


@every_state
def test_many_streams_in_room_for_few_are_as_alone(architecture: str) -> None:
    many = [
        request(f"r{i}", LONG[: 16 + i % 3 * 8] + (i,), SAMPLING, max_tokens=6) for i in range(64)
    ]
    with engine(architecture, limits=roomy(n_pages=1024)) as running:
        alone = [running.run(req)[0].token_ids for req in many]
    limits = roomy(n_pages=16 * 11, max_running=16, ctx_checkpoints=1)
    with engine(architecture, limits=limits) as running:
        assert [outcome.token_ids for outcome in running.run_together(*many)] == alone


@every_state
def test_the_least_recently_used_state_goes_first(architecture: str) -> None:
    limits = roomy(n_pages=1024, max_running=1, ctx_checkpoints=2)
    with engine(architecture, limits=limits) as running:
        for req in REQUESTS:
            running.run(req)
        assert running.core.stats().checkpoints == 2
        check([running.run(req)[0] for req in REQUESTS], architecture)


@every_state
def test_what_many_begin_with_is_computed_once(architecture: str) -> None:
    """The same prompt at the same time, and others that part from it: they wait for its state."""
    same = [request(f"s{i}", LONG, replace(SAMPLING, seed=i), max_tokens=5) for i in range(3)]
    parting = request("p", LONG[:32] + random_ids(7, seed=9), SAMPLING, max_tokens=5)
    alone = []
    for req in (*same, parting):
        with engine(architecture, limits=roomy(n_pages=1024)) as running:
            alone += running.run(req)
    limits = roomy(n_pages=1024, max_batch_tokens=16, max_running=8)
    with engine(architecture, limits=limits) as running:
        together = running.run_in_one_batch(*same, parting)
    assert [outcome.token_ids for outcome in together] == [outcome.token_ids for outcome in alone]
    assert [outcome.cached_tokens for outcome in together] == [0, 44, 44, 32]

"""The laws of the engine: what comes of a request depends on it alone, exact in float32.

Each law disturbs a workload in one way, and asserts that the same comes of it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from deployments.contract.events import CacheSource
from deployments.contract.slots import SlotAction, SlotReport, SlotVerb
from tests.engine.drive import Engine, Faults
from tests.engine.peers import Peer, pulling
from tests.engine.workload import Workload, check_same, continued, gone_on, salted

Law = Callable[[Workload], None]


def alone_is_as_the_reference_says(workload: Workload) -> None:
    with workload.engine() as running:
        workload.check(running.run(req)[0] for req in workload.requests)


def batched_is_alone(workload: Workload) -> None:
    """A step has a token of each request, unless some wait for a grammar or a medium."""
    with workload.engine() as running:
        workload.check_on(running)
        longest = max(len(outcome.token_ids) for outcome in workload.undisturbed)
        waits = any(req.grammar or req.media for req in workload.requests)
        assert waits or running.core.stats().steps < 1.5 * longest


def streamed_is_unary(workload: Workload) -> None:
    """An event of a stream has whatever piled up, one of `run` a single token."""
    with workload.engine() as running:
        workload.check(running.run_together(req)[0] for req in workload.apart())


def chunked_is_whole(workload: Workload) -> None:
    """Prompts that share a prefix wait for the first of them, unless they are kept apart."""
    requests = workload.apart() if workload.is_apart_in_chunks else workload.requests
    for changes in workload.chunks:
        with workload.engine(**changes) as running:
            workload.check(workload.come(running, *requests))


def a_hit_is_no_hit(workload: Workload) -> None:
    """All full pages of a prompt are found but for its last token, and its media with them. Who
    wants log-probabilities of the prompt has it computed again."""
    with workload.engine() as running:
        workload.check_on(running)
        n_encoded = running.core.stats().media_encoded
        page_size = workload.limits.page_size
        for outcome, req in zip(workload.check_on(running), workload.requests, strict=True):
            n_pages = (len(req.prompt_ids) - 1) // page_size
            n_found = n_pages * page_size if req.prompt_logprobs is None else 0
            assert outcome.cached_tokens == n_found
        assert running.core.stats().media_encoded == n_encoded


def restored_is_computed(workload: Workload, folder: Path) -> None:
    """An engine finds on the disk what the one before it has left there: all full pages of its
    prompts that are long enough, but for their last tokens."""
    kept = workload.kept_in(folder)
    for n_before in (0, 1):
        with kept.engine() as running:
            outcomes = kept.check_on(running)
            stats = running.core.stats()
        assert stats.kv_disk_corrupt == stats.kv_disk_declined == 0
        size = workload.limits.page_size
        n_found = sum((len(req.prompt_ids) - 1) // size * size for req in workload.requests)
        assert stats.kv_disk_hit_tokens == n_found * n_before
        by_source = [dict(outcome.cached_by_source) for outcome in outcomes]
        assert sum(sources[CacheSource.DISK] for sources in by_source) == n_found * n_before
        assert sum(outcome.cached_tokens for outcome in outcomes) == n_found * n_before


def pulled_is_computed(workload: Workload) -> None:
    """A replica gets from another one all full pages of its prompts but for their last tokens."""
    size = workload.limits.page_size
    with workload.pulling_by(Peer()).engine() as first:
        workload.check_on(first)
        with workload.pulling_by(Peer(first.core.pages)).engine() as second:
            outcomes = workload.come(second, *(pulling(req, size) for req in workload.requests))
            workload.check(outcomes)
            stats = second.core.stats()
    assert stats.kv_remote_corrupt == stats.kv_remote_declined == 0
    n_found = sum((len(req.prompt_ids) - 1) // size * size for req in workload.requests)
    assert sum(outcome.cached_tokens for outcome in outcomes) == n_found
    assert stats.kv_remote_hit_tokens == n_found
    by_source = [dict(outcome.cached_by_source) for outcome in outcomes]
    assert sum(sources[CacheSource.REMOTE] for sources in by_source) == n_found


def a_saved_slot_is_computed(workload: Workload, folder: Path) -> None:
    """The next request of a slot that another engine has restored finds all that it was told, and
    gets what would be computed."""
    saving = workload.on(slot_save_path=str(folder))
    n_saved = []
    with saving.engine() as running:
        for number, req in enumerate(saving.requests):
            running.run(replace(req, id_slot=number))
            n_saved.append(act(running, "save", number).n_tokens)
    pairs = zip(workload.requests, workload.undisturbed, strict=True)
    going_on = replace(
        workload.on(), requests=[gone_on(req, outcome) for req, outcome in pairs], reference=None
    )
    restoring = going_on.on(slot_save_path=str(folder))
    with restoring.engine() as running:
        for number, n in enumerate(n_saved):
            assert act(running, "restore", number + 7, f"{number}.bin").n_tokens == n > 0
        outcomes = restoring.check_on(running)
    assert [outcome.cached_tokens for outcome in outcomes] == n_saved


def act(
    running: Engine, verb: str, id_slot: int, filename: str = "", owner: str = ""
) -> SlotReport:
    """Acts on a slot, by default with a file of its number."""
    named = "" if verb == "erase" else filename or f"{id_slot}.bin"
    action = SlotAction(verb=SlotVerb(verb), owner=owner, id_slot=id_slot, filename=named)
    return asyncio.run(running.core.act_on_slot(action))


def preempted_is_undisturbed(workload: Workload) -> None:
    """Layers with states go on from the last page whose state was kept."""
    assert workload.few_pages
    for changes in workload.few_pages:
        with workload.engine(**changes) as running:
            workload.check_on(running)
            stats = running.core.stats()
            assert stats.preemptions > 0
            assert stats.checkpoints_restored > 0 or not running.core.cache.shape.has_states


def failed_over_is_undisturbed(workload: Workload) -> None:
    """Another replica has begun the answers, and has told the log-probabilities of prompts."""
    pairs = [*zip(workload.requests, workload.undisturbed, strict=True)]
    with workload.engine() as running:
        for n in workload.cuts:
            begun = [(req, whole) for req, whole in pairs if len(whole.token_ids) > n]
            assert begun
            rest = [salted(continued(req, whole, n), f"{n}") for req, whole in begun]
            for outcome, (_, whole) in zip(workload.come(running, *rest), begun, strict=True):
                check_same(outcome, whole, skipped=n, tolerance=workload.tolerance)


def launched_ahead_is_in_turns(workload: Workload) -> None:
    """A step is launched before the last one's tokens are known."""
    with workload.engine(**workload.ahead, async_scheduling=True) as running:
        workload.check_on(running)


def drafted_is_plain(workload: Workload) -> None:
    """Tokens are guessed, and checked some at once."""
    drafting = workload.on(**workload.drafting)
    with drafting.engine() as running:
        drafting.check_on(running)


def each_accepted_token_saves_a_step(workload: Workload) -> None:
    """Each prompt is a step here, and so is each later token that was not drafted."""
    drafting = workload.on(**workload.drafting)
    with drafting.engine() as running:
        outcomes = [running.run(req)[0] for req in drafting.requests]
        stats = running.core.stats()
    drafting.check(outcomes)
    assert 0 < stats.accepted_tokens < stats.drafted_tokens
    assert stats.drafted_tokens == sum(outcome.drafted_tokens for outcome in outcomes)
    assert stats.accepted_tokens == sum(outcome.accepted_tokens for outcome in outcomes)
    assert stats.accepted_tokens == sum(stats.accepted_by_position)
    n_tokens = sum(len(outcome.token_ids) for outcome in outcomes)
    assert stats.steps == n_tokens - stats.accepted_tokens


def a_failed_step_changes_nothing(workload: Workload) -> None:
    """Its rows are computed again. A launch ahead that fails is repeated, and is no failed step:
    none is tried for a while."""
    with workload.engine() as running:
        faults, step = Faults(running.model), count()
        faults.failing = lambda ids: next(step) in workload.failing
        workload.check(running.run_in_one_batch(*workload.requests))
        n_ahead = bool(workload.limits.async_scheduling)
        assert running.core.stats().failed_steps == len(workload.failing) - n_ahead


# Of whatever a request may ask for.
USUAL = (
    batched_is_alone,
    chunked_is_whole,
    preempted_is_undisturbed,
    failed_over_is_undisturbed,
    launched_ahead_is_in_turns,
)

"""Requests, what comes of each when nothing disturbs it, and the engines that serve them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedModel

from deployments.contract.events import TokenLogprob
from deployments.contract.requests import GenerationRequest
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.draft_check import Drafting
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.needs.remote_pages import PullPages
from deployments.engine.outputs.vectors import unpack
from tests.engine.drive import Engine, Outcome, ascii_tokenizer, engine, roomy
from tests.models import tiny_model

Limits = Mapping[str, float | None]  # changes of an engine's limits


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Some requests, their engines, and how the laws disturb them.

    `reference` says what comes of each request. Without it that is asked of the engine itself.
    `come` submits them. `draft` drafts where the limits say that something is drafted.
    """

    requests: Sequence[GenerationRequest]
    reference: Callable[[], Sequence[Outcome]] | None = None
    model: Callable[[], PreTrainedModel | LoadedModel] = tiny_model
    draft: Callable[[], PreTrainedModel | Drafting] | None = None
    eos: frozenset[int] = frozenset()
    pull: PullPages | None = None
    tokenizer_json: Callable[[], str] = ascii_tokenizer
    limits: EngineLimits = field(default_factory=roomy)
    come: Callable[..., list[Outcome]] = Engine.run_together
    tolerance: float = 1e-4  # of log-probabilities and vectors
    chunks: Sequence[Limits] = ({"max_batch_tokens": 5, "max_running": 4},)
    is_apart_in_chunks: bool = False  # whether they have salts of their own there
    few_pages: Sequence[Limits] = ()
    cuts: Sequence[int] = (1, 7)  # tokens that an earlier replica has produced
    ahead: Limits = field(default_factory=dict)
    failing: Sequence[int] = (1, 6, 13)  # steps
    drafting: Limits = field(default_factory=lambda: {"draft_tokens": 5})
    n_drafted: int = 0  # requests that something is drafted for, at least
    n_accepted: int = 0  # requests with drafts that are right, at least

    @contextmanager
    def engine(self, **changes: float | None) -> Iterator[Engine]:
        limits = replace(self.limits, **changes)  # type: ignore[arg-type]
        with engine(
            model=self.model(),
            eos=self.eos,
            limits=limits,
            tokenizer_json=self.tokenizer_json,
            draft=self.draft() if self.draft is not None and limits.draft_tokens else None,
            pull=self.pull,
        ) as running:
            yield running

    def on(self, **changes: float | str | None) -> "Workload":
        """The same requests, of which the same must come, on engines of other limits."""
        limits = replace(self.limits, **changes)  # type: ignore[arg-type]
        return replace(self, limits=limits, reference=lambda: self.undisturbed)

    def kept_in(self, folder: Path) -> "Workload":
        """The same on engines that keep prefixes in a folder."""
        limits = replace(self.limits, cache_disk=str(folder))
        return replace(self, limits=limits, reference=lambda: self.undisturbed)

    def pulling_by(self, pull: PullPages) -> "Workload":
        """The same on engines that pull pages from others."""
        return replace(self, pull=pull, reference=lambda: self.undisturbed)

    @cached_property
    def undisturbed(self) -> Sequence[Outcome]:
        """Each request alone, its prompt in one piece, no prefix to find."""
        if self.reference is not None:
            return self.reference()
        with self.engine() as running:
            outcomes = [running.run(req)[0] for req in self.apart()]
            assert running.core.stats().cached_tokens == 0
        return outcomes

    def apart(self) -> list[GenerationRequest]:
        """The requests with salts of their own: none can hit another's pages."""
        return [salted(req, f"{number}") for number, req in enumerate(self.requests)]

    def check_on(self, running: Engine) -> list[Outcome]:
        """Serves all requests, and asserts that their outcomes are the undisturbed ones."""
        outcomes = self.come(running, *self.requests)
        self.check(outcomes)
        return outcomes

    def check(self, outcomes: Iterable[Outcome]) -> None:
        found = [*outcomes]
        for outcome, expected in zip(found, self.undisturbed, strict=True):
            check_same(outcome, expected, tolerance=self.tolerance)
        if self.limits.draft_tokens:
            assert sum(outcome.drafted_tokens > 0 for outcome in found) >= self.n_drafted
            assert sum(outcome.accepted_tokens > 0 for outcome in found) >= self.n_accepted


def beside(first: Workload, *others: Workload) -> Workload:
    """The requests of several workloads, on the engines of the first one."""
    workloads = (first, *others)
    return replace(
        first,
        requests=[req for workload in workloads for req in workload.requests],
        reference=lambda: [each for workload in workloads for each in workload.undisturbed],
    )


def salted(one: GenerationRequest, salt: str) -> GenerationRequest:
    return replace(one, content=replace(one.content, salt=salt))


def continued(one: GenerationRequest, whole: Outcome, n: int) -> GenerationRequest:
    """A request as it goes on when its replica has died behind the first `n` tokens."""
    sampling = one.sampling
    if n and sampling.mirostat is not None:
        sampling = replace(sampling, mirostat=replace(sampling.mirostat, mu=whole.states[n - 1]))
    return replace(one, sampling=sampling, produced_ids=whole.token_ids[:n])


def gone_on(one: GenerationRequest, whole: Outcome) -> GenerationRequest:
    """The next request of a conversation: what was answered, and a few tokens."""
    return replace(one, prompt_ids=(*one.prompt_ids, *whole.token_ids, 5, 6))


def check_same(
    outcome: Outcome, expected: Outcome, skipped: int = 0, tolerance: float = 1e-4
) -> None:
    """Asserts that an outcome is the expected one behind its first `skipped` tokens."""
    assert outcome.error is None, outcome.error
    assert outcome.token_ids == expected.token_ids[skipped:]
    assert outcome.finish_reason is expected.finish_reason
    assert outcome.stop_token_id == expected.stop_token_id
    assert outcome.states == pytest.approx(expected.states[skipped:], abs=1e-3)
    _check_logprobs(outcome.logprobs, expected.logprobs[skipped:], tolerance)
    if skipped or expected.prompt_logprobs is None:
        assert outcome.prompt_logprobs is None
    else:
        assert outcome.prompt_logprobs is not None
        _check_logprobs(outcome.prompt_logprobs, expected.prompt_logprobs, tolerance)
    assert (outcome.vectors is None) == (expected.vectors is None)
    if outcome.vectors is not None and expected.vectors is not None:
        ours, theirs = unpack(outcome.vectors), unpack(expected.vectors)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def _check_logprobs(
    found: Sequence[TokenLogprob | None], expected: Sequence[TokenLogprob | None], tolerance: float
) -> None:
    ours, theirs = ([*map(_pairs, entries)] for entries in (found, expected))
    assert [[id for id, _ in pairs] for pairs in ours] == [
        [id for id, _ in pairs] for pairs in theirs
    ]
    numbers, others = ([value for pairs in each for _, value in pairs] for each in (ours, theirs))
    np.testing.assert_allclose(numbers, others, rtol=0, atol=tolerance)


def _pairs(entry: TokenLogprob | None) -> list[tuple[int, float]]:
    """An entry's token and its alternatives, with their log-probabilities."""
    return [] if entry is None else [(entry.token_id, entry.logprob), *entry.top]

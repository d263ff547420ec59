"""What layers with a state produce depends on the request alone, as with keys and values."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import count

import pytest
from torch import nn

from deployments.engine.forward.recurrent import can_keep_states
from deployments.wire import SamplingParams
from tests.engine.drive import Engine, Outcome, engine, random_ids, request, roomy
from tests.models import STATES, tiny_model

# Gated delta nets between attention; Mamba 2 and Mamba 1, whose layers can't go on in a chunk.
pytestmark = [
    pytest.mark.parametrize("architecture", STATES),
    pytest.mark.skipif(not can_keep_states(), reason="needs a newer transformers"),
]
N_NEW = 14
SAMPLING = SamplingParams(temperature=2, seed=3, logprobs=1)
PROMPTS = (random_ids(21), random_ids(21)[:16] + random_ids(3, seed=2), random_ids(2, seed=4))
REQUESTS = [request(f"r{i}", one, SAMPLING, max_tokens=N_NEW) for i, one in enumerate(PROMPTS)]


@cache
def undisturbed(architecture: str) -> list[Outcome]:
    with engine(architecture) as running:
        return [running.run(one)[0] for one in REQUESTS]


def check(outcomes: list[Outcome], architecture: str, skipped: int = 0) -> None:
    for outcome, expected in zip(outcomes, undisturbed(architecture), strict=True):
        assert outcome.token_ids == expected.token_ids[skipped:]
        logprobs = [one.logprob for one in expected.logprobs[skipped:]]
        assert [one.logprob for one in outcome.logprobs] == pytest.approx(logprobs, abs=1e-3)
        assert outcome.cached_tokens == 0  # a page says nothing of the state behind it


def test_batched_and_asked_again_is_alone(architecture: str) -> None:
    with engine(architecture) as running:
        check(running.run_together(*REQUESTS), architecture)
        check(running.run_together(*REQUESTS), architecture)


def test_chunked_is_whole(architecture: str) -> None:
    with engine(architecture, limits=roomy(max_running=3, max_batch_tokens=5)) as running:
        check(running.run_together(*REQUESTS), architecture)


def test_preempted_is_undisturbed(architecture: str) -> None:
    with engine(architecture, limits=roomy(n_pages=16)) as running:
        check(running.run_together(*REQUESTS), architecture)
        assert running.core.stats().preemptions > 0


@contextmanager
def failing(architecture: str, *steps: int) -> Iterator[Engine]:
    """An engine of whose steps these fail, when the states behind them are written."""
    model, number = tiny_model(architecture), count()

    def fail(module: nn.Module, args: object) -> None:
        if next(number) in steps:
            raise ValueError("a fault")

    with engine(architecture, model=model) as running:
        model.get_output_embeddings().register_forward_pre_hook(fail)
        yield running


def test_a_failed_step_changes_nothing(architecture: str) -> None:
    with failing(architecture, 0, 5, 12) as running:
        check(running.run_together(*REQUESTS), architecture)
        assert running.core.stats().failed_steps == 3


def test_failed_over_is_undisturbed(architecture: str) -> None:
    known = [one.token_ids[:5] for one in undisturbed(architecture)]
    rest = [replace(one, produced_ids=ids) for one, ids in zip(REQUESTS, known, strict=True)]
    with engine(architecture) as running:
        check(running.run_together(*rest), architecture, skipped=5)

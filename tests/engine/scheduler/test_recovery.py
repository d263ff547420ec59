"""A failed step's rows are computed again in smaller ones: only what fails alone has failed."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.sampling.sampler import Sample, default_pipeline
from deployments.engine.tasks.mailbox import ThreadMailbox
from deployments.engine.tasks.task import make_task
from tests.effort import tries
from tests.engine.drive import ERROR, Engine, Faults, Outcome, engine, random_ids, request, roomy
from tests.engine.test_laws_combined import REQUESTS, WORKLOAD
from tests.engine.workload import Workload
from tests.models import VOCAB, forgetful, tiny_model

BAD = 100
GOOD_IDS = tuple(token_id for token_id in random_ids(40) if token_id != BAD)
SAMPLING = SamplingParams(temperature=0, logit_bias=((BAD, -1e9),), logprobs=1)
BAD_ONE = request("bad", (1, BAD, 2), SAMPLING)
GOOD_ONES = [
    request(f"r{n}", (n, *GOOD_IDS[: n - 1]), SAMPLING, max_tokens=12) for n in (12, 3, 25, 8, 17)
]

GOOD = Workload(requests=GOOD_ONES)
NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
NO_MEMORY_ON_CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")  # fmt: skip  # noqa: E501


@contextmanager
def faulty_engine(error: Exception, **limits: float) -> Iterator[tuple[Engine, Faults]]:
    model = tiny_model()
    faults = Faults(model, error)
    with engine(model=model, limits=roomy(**limits)) as running:
        faults.sizes.clear()
        yield running, faults


def holds_bad(ids: Tensor) -> bool:
    return bool((ids == BAD).any())


def check(outcomes: Sequence[Outcome], requests: Sequence[GenerationRequest] = GOOD_ONES) -> None:
    """Asserts that they are the undisturbed ones, and that each found nothing of its own."""
    (GOOD if requests is GOOD_ONES else Workload(requests=requests)).check(outcomes)
    assert {outcome.cached_tokens for outcome in outcomes} == {0}


def assert_failed(outcome: Outcome, words: str = "failed on this request") -> None:
    assert outcome.finish_reason is FinishReason.ERROR
    assert outcome.error is not None
    assert words in outcome.error.message
    out_of_memory = "out of memory" in words
    assert outcome.error.kind is (ErrorKind.OUT_OF_MEMORY if out_of_memory else ErrorKind.INTERNAL)


@pytest.mark.parametrize("error", [ERROR, NO_MEMORY, NO_MEMORY_ON_CPU, MemoryError()], ids=str)
@pytest.mark.parametrize("index", range(6))
def test_only_the_row_that_fails_alone_fails(error: Exception, index: int) -> None:
    requests = [*GOOD_ONES[:index], BAD_ONE, *GOOD_ONES[index:]]
    with faulty_engine(error) as (running, faults):
        faults.failing = holds_bad
        outcomes = running.run_in_one_batch(*requests)
        stats = running.core.stats()
        running.core.check_health()
    words = "failed on this" if error is ERROR else "out of memory"
    assert_failed(outcomes.pop(index), words)
    check(outcomes)
    assert 3 <= stats.failed_steps <= 6
    assert 9 <= stats.retried_rows <= 14


def test_several_bad_rows_fail_and_the_others_do_not() -> None:
    bad = [replace(BAD_ONE, request_id=f"bad {i}", prompt_ids=(i, BAD)) for i in range(5)]
    with faulty_engine(ERROR) as (running, faults):
        faults.failing = holds_bad
        outcomes = running.run_at_once(*bad[:3], *GOOD_ONES, *bad[3:])
        running.core.check_health()
    for outcome in outcomes[:3] + outcomes[8:]:
        assert_failed(outcome)
    check(outcomes[3:8])


@pytest.mark.parametrize("error", [NO_MEMORY, MemoryError()], ids=str)
@pytest.mark.parametrize("n_fitting", [1, 2, 7, 16])
def test_steps_that_do_not_fit_into_memory_become_smaller(error: Exception, n_fitting: int) -> None:
    """Prompts are cut, and rows that can't be computed at once take turns."""
    with faulty_engine(error) as (running, faults):
        faults.failing = lambda ids: len(ids) > n_fitting
        outcomes = running.run_at_once(*GOOD_ONES)
    assert max(faults.sizes) <= n_fitting
    check(outcomes)


def test_steps_become_larger_again_when_there_is_memory() -> None:
    long = request("long", GOOD_IDS[:20], SAMPLING, max_tokens=300)
    with faulty_engine(NO_MEMORY, max_batch_tokens=32) as (running, faults):
        faults.failing = lambda ids: len(ids) > 4
        assert running.run(long)[0].finish_reason is FinishReason.LENGTH
        assert max(faults.sizes) <= 4
        assert running.core.stats().failed_steps == 2  # 20 tokens, and 8: whole pages of 10
        running.run(request("others", GOOD_IDS[9:], SAMPLING, max_tokens=1))
        assert max(faults.sizes) <= 4, "4 tokens fit, and 8 after 64 steps are tried in vain"
        faults.failing = lambda ids: False
        running.run(request("long again", (1, *GOOD_IDS), SAMPLING, max_tokens=300))
        faults.sizes.clear()
        running.run(request("whole", (2, *GOOD_IDS[:29]), SAMPLING, max_tokens=1))
    assert faults.sizes == [30]


def test_rows_take_turns_while_a_step_can_not_hold_them_all() -> None:
    """None waits for the others' ends."""
    requests = [request(f"r{i}", (i,), SAMPLING, max_tokens=30) for i in range(6)]
    ended: list[int] = []
    progress = [0] * 6
    gaps: list[int] = []
    with faulty_engine(NO_MEMORY) as (running, faults):
        faults.failing = lambda ids: len(ids) > 2
        for index, event in running.core.run(requests):
            progress[index] += len(event.token_ids)
            gaps.append(max(progress) - min(progress))
            ended += [index] * (event.finish_reason is not None)
    assert sorted(ended) == list(range(6))
    assert max(gaps) <= 12


def test_a_row_that_ran_out_of_memory_once_goes_on() -> None:
    n_steps = 0

    def fails_once(ids: Tensor) -> bool:
        nonlocal n_steps
        n_steps += 1
        return n_steps == 5

    one = request("r", GOOD_IDS[:12], SAMPLING, max_tokens=12)
    with faulty_engine(NO_MEMORY, async_scheduling=False) as (running, faults):
        faults.failing = fails_once
        outcomes = running.run(one)
        assert running.core.stats().failed_steps == 1
    check(outcomes, [one])


@pytest.mark.parametrize("error", [ERROR, NO_MEMORY], ids=str)
def test_what_a_failed_step_wrote_is_found_by_nobody(error: Exception) -> None:
    """Not in pages that were shared, nor in those that it would have filled."""
    shared = GOOD_IDS[:22]
    first, bad, other = (
        request("first", shared, SAMPLING, max_tokens=40),
        request("bad", (*shared[:21], BAD, *GOOD_IDS[:20]), SAMPLING),
        request("other", (*shared, 5), SAMPLING, max_tokens=9),
    )
    with faulty_engine(error, max_batch_tokens=24) as (running, faults):
        faults.failing = holds_bad
        outcomes = running.run_at_once(first, bad, other)
        (later,) = running.run(request("later", shared, SAMPLING, max_tokens=40))
        (again,) = running.run(bad)
    words = "failed on this" if error is ERROR else "out of memory"
    assert_failed(outcomes[1], words)
    assert_failed(again, words)
    Workload(requests=[first, other, first]).check([outcomes[0], outcomes[2], later])
    assert later.cached_tokens == 20


def test_a_row_can_be_left_while_it_is_tried_again() -> None:
    async def scenario() -> list[Outcome]:
        running.gate.close()
        tasks = [asyncio.create_task(running.follow(req)) for req in (BAD_ONE, *GOOD_ONES)]
        await asyncio.sleep(0)
        running.gate.step()  # the first one, alone or not
        running.gate.step()
        running.core.abort("bad")
        running.core.abort("r12")
        running.gate.open()
        return [(await task).outcome for task in tasks]

    with faulty_engine(NO_MEMORY) as (running, faults):
        faults.failing = holds_bad
        bad, left, *others = asyncio.run(scenario())
    assert bad.finish_reason in (FinishReason.ABORT, FinishReason.ERROR)
    assert left.finish_reason is FinishReason.ABORT
    check(others, GOOD_ONES[1:])


class ScarceMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets single operations of the engine's thread find no memory, wherever they are."""

    def __init__(self, first: nn.Module, gaps: Sequence[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_faults = 0
        self._gaps = iter(gaps)
        self.left = next(self._gaps)
        self._entered = False
        first.register_forward_pre_hook(self._enter)

    def _enter(self, *_: object) -> None:
        if self._entered:  # it ended with the last step's inference mode
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._entered = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.left -= 1
        if self.left == 0:
            self.left = next(self._gaps, 0)
            self.n_faults += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return func(*args, **kwargs or {})


@settings(max_examples=tries(3, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    gaps=st.lists(st.integers(1500, 5000), min_size=4, max_size=8),
    n_pages=st.integers(16, 60),
    n_tokens=st.integers(16, 60),
    is_async=st.booleans(),
)
def test_memory_that_runs_out_at_any_operation_changes_nothing(
    gaps: list[int], n_pages: int, n_tokens: int, is_async: bool
) -> None:
    model = forgetful()
    memory = ScarceMemory(model.get_input_embeddings(), gaps)
    workload = replace(WORKLOAD, model=lambda: model, reference=lambda: WORKLOAD.undisturbed)
    limits = {"n_pages": n_pages, "max_batch_tokens": n_tokens}
    with workload.engine(**limits, async_scheduling=is_async) as running:
        outcomes = running.run_at_once(*workload.requests)
    assert memory.n_faults
    workload.check(outcomes)


@pytest.mark.parametrize("name", ["steered", "remembering thought"])
def test_a_draw_that_fails_at_any_operation_is_the_same_when_it_is_repeated(name: str) -> None:
    sampling = replace(REQUESTS[name].sampling, logprobs=3, sampled_logprobs=True)
    one = replace(REQUESTS[name], grammar="", sampling=sampling)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(12, 1, VOCAB, generator=generator) * 3
    expected, n_operations = draw_all(one, logits, fault=0)
    assert n_operations > 30
    for fault in range(1, n_operations + 1):
        assert draw_all(one, logits, fault)[0] == expected


def draw_all(one: GenerationRequest, logits: Tensor, fault: int) -> tuple[list[Sample], int]:
    """Draws from each row of logits; operation `fault` of the last draw but one fails, none for 0.

    Returns the samples, and how many operations that draw has.
    """
    task = make_task("r", one, ThreadMailbox(0, SimpleQueue()), frozenset(), 200)
    pipeline = default_pipeline()
    samples = []
    memory = ScarceMemory(nn.Identity(), [fault or 10**9])
    for i, row in enumerate(logits):
        if i == len(logits) - 2:
            with suppress(torch.OutOfMemoryError), memory:
                pipeline.sample(row.clone(), [task])
            task.rewind()
        (sample,) = pipeline.sample(row.clone(), [task])
        assert sample.token_id is not None
        task.append(sample.token_id)
        samples.append(sample)
    return samples, 10**9 - memory.left

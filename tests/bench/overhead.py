"""The cost of a step beside the model's work: a scheduler over a forward pass that is free.

    python -m tests.bench.overhead [--rows 256] [--contexts 100 1000 8000] [--vocab 128]

CPU time of the engine's thread, median of the steps in which all rows decode.
"""

import argparse
import asyncio
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.grammar.grammar_need import GrammarNeed
from deployments.engine.runner import Runner
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.scheduler import InferenceScheduler
from deployments.engine.tasks.task import make_task
from kv.cache import KVCache
from kv.content import Content
from kv.layout import alike
from kv.shape import CacheShape
from tests.engine.drive import GREEDY

MIXED = (
    GREEDY,
    SamplingParams(temperature=0.7, seed=1),
    SamplingParams(temperature=0.8, top_p=0.9, seed=2),
    SamplingParams(temperature=1.0, top_k=40, min_p=0.05, seed=3),
)
BATCHES = {
    "greedy": (GREEDY,),
    "random": (SamplingParams(seed=1),),
    "mixed": MIXED,
    "mixed, logprobs": (*MIXED[1:], replace(GREEDY, logprobs=1)),
    "penalties": (replace(MIXED[1], repetition_penalty=1.1, frequency_penalty=0.1),),
}
PAGE = 16
NO_STATES = torch.empty(0, 0)
N_STEPS = 56


class FreeForward:
    """Says the same logits at any step; its time is not counted."""

    def __init__(self, rows: int, vocab: int, clock: "Clock") -> None:
        self._rows = rows
        # As peaked as those of models are: a few tokens have most of the probability.
        self._logits = 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(0))
        self._clock = clock

    def capture(self, max_rows: int, max_tokens: int) -> None:
        pass

    def compute(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        begun = time.thread_time()
        logits = self._logits[: len(step.logit_indices)].clone()
        self._clock.is_full = len(step.token_ids) == len(step.new_len) == self._rows
        self._clock.free += time.thread_time() - begun
        return logits, NO_STATES

    def drop_graphs(self) -> None:
        pass


class Clock:
    """Sums up what the parts of a step take, each without the parts within it."""

    def __init__(self) -> None:
        self.free = 0.0
        self.is_full = False  # whether all rows decoded in this step
        self.steps: list[dict[str, float]] = []
        self._step: defaultdict[str, float] = defaultdict(float)

    def around(self, owner: object, method: str, part: str) -> None:
        inner: Callable[..., object] = getattr(owner, method)

        def timed(*arguments: object, **named: object) -> object:
            begun, before = time.thread_time(), self._within()
            result = inner(*arguments, **named)
            self._step[part] += time.thread_time() - begun - (self._within() - before)
            return result

        setattr(owner, method, timed)

    def step(self, owner: object, method: str) -> None:
        self.around(owner, method, "rest")
        inner: Callable[..., object] = getattr(owner, method)

        def step() -> None:
            inner()
            if self.is_full:
                self.steps.append(dict(self._step))
            self._step.clear()
            self.is_full = False

        setattr(owner, method, step)

    def _within(self) -> float:
        return sum(self._step.values()) + self.free

    def medians(self) -> dict[str, float]:
        """Milliseconds by part, of all of them, and of all in the worst step."""
        result = {
            part: statistics.median(step[part] for step in self.steps) for part in self.steps[0]
        }
        result["all"] = statistics.median(sum(step.values()) for step in self.steps)
        result["worst"] = max(sum(step.values()) for step in self.steps)
        return {part: seconds * 1e3 for part, seconds in result.items()}


class Silent:
    """A mailbox on a real event loop, whose reader does nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.ended = threading.Event()

    def put(self, event: TokenEvent) -> None:
        if event.finish_reason is not None:
            self.ended.set()


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    reader = threading.Thread(target=loop.run_forever)
    reader.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        reader.join()
        loop.close()


def build(shape: CacheShape, clock: Clock, vocab: int) -> tuple[InferenceScheduler, Admission]:
    cache, pipeline, rows = KVCache(shape), default_pipeline(), shape.max_tasks
    needs = (GrammarNeed(None, vocab, frozenset()),)  # as in every engine that says text
    runner = Runner(cast(Forward, FreeForward(rows, vocab, clock)), cache, pipeline, 1, needs=needs)
    admission = Admission(1 << 20)
    scheduler = InferenceScheduler(runner, cache, admission, needs)
    for part in ("receive", "refill"):
        clock.around(scheduler, f"_{part}", part)
    clock.around(scheduler._committer, "commit", "commit")
    clock.around(scheduler._outbox, "deliver", "deliver")
    clock.around(scheduler._planner, "plan", "plan")
    clock.around(runner, "_inputs", "inputs")
    clock.around(pipeline, "launch", "sampling")
    clock.step(scheduler, "_step_once")
    return scheduler, admission


def measure(
    rows: int, context: int, vocab: int, samplings: Sequence[SamplingParams], waiting: int
) -> dict[str, float]:
    longest = context + N_STEPS
    shape = CacheShape(
        layout=alike(1, 1, 1),
        n_pages=rows * -(-longest // PAGE),
        page_size=PAGE,
        max_tasks=rows,
        max_tokens=longest,
        max_new_tokens=rows * longest,
    )
    prompt = torch.randint(0, vocab, (context,), generator=torch.Generator().manual_seed(0))
    request = GenerationRequest(request_id="", prompt_ids=tuple(prompt.tolist()))
    clock = Clock()
    scheduler, admission = build(shape, clock, vocab)
    with event_loop() as loop:
        mailboxes = [Silent(loop) for _ in range(rows)]
        for i in range(rows + waiting):
            one = replace(request, sampling=samplings[i % len(samplings)], content=Content(str(i)))
            mailbox = mailboxes[i % rows]
            task = make_task(str(i), one, mailbox, frozenset(), longest)
            admission.enter(task)
            scheduler.add(task)
        for mailbox in mailboxes[-waiting:] if waiting else mailboxes:
            mailbox.ended.wait()
        scheduler.stop()
    return clock.medians()


def main(arguments: argparse.Namespace) -> None:
    columns = ("receive", "refill", "plan", "inputs", "commit", "deliver", "rest", "sampling")
    table = Table(title=f"{arguments.rows} rows, vocabulary {arguments.vocab}: CPU ms a step")
    for column in ("batch", "context", *columns, "all", "but sampling"):
        table.add_column(column, justify="right")
    for name in arguments.batches:
        for context in arguments.contexts:
            ms = measure(arguments.rows, context, arguments.vocab, BATCHES[name], arguments.waiting)
            figures = [ms[column] for column in columns]
            figures += [ms["all"], ms["all"] - ms["sampling"]]
            table.add_row(name, str(context), *(f"{figure:.2f}" for figure in figures))
    Console(width=150).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--contexts", type=int, nargs="+", default=[100, 1000, 8000])
    parser.add_argument("--batches", nargs="+", choices=BATCHES, default=["greedy", "mixed"])
    parser.add_argument("--vocab", type=int, default=128)
    parser.add_argument("--waiting", type=int, default=0)
    torch.set_num_threads(1)
    main(parser.parse_args())

"""Threads that follow grammars beside the engine's own, so that no step waits for a grammar.

What takes long has one thread for all sequences, which runs the cheapest job first.
"""

import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Job = Callable[[], None]

MAX_THREADS = 8  # for the masks of a step
NO_GRAMMAR = "start: undefined"


class MaskWorker:
    """Runs jobs on threads of its own until `stop`."""

    def __init__(self, tokenizer: "LLTokenizer", wake: Job) -> None:
        """`wake` is called, on any thread, after each job that may have taken long."""
        from llguidance import LLExecutor, LLMatcher

        self.n_words = -(-tokenizer.vocab_size // 32)  # of a mask
        self._wake = wake
        self._n_threads = min(MAX_THREADS, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(self._n_threads, "masks")
        self._numbers = itertools.count()
        # By cost; None ends the thread.
        self._long: queue.PriorityQueue[tuple[float, int, Job, Future[None] | None]]
        self._long = queue.PriorityQueue()
        self._long_thread = threading.Thread(target=self._run_long, name="long masks", daemon=True)
        self._long_thread.start()
        self._executor = LLExecutor(1)
        self._failed_matcher = LLMatcher(tokenizer, NO_GRAMMAR, log_level=0)

    def begin(self, jobs: Sequence[Job]) -> list["Future[None]"]:
        """Begins jobs that take little. The threads take one after the other."""
        futures: list[Future[None]] = [Future() for _ in jobs]
        shared = iter([*zip(jobs, futures, strict=True)])
        for _ in range(min(self._n_threads, len(jobs))):
            self._threads.submit(_run_each, shared)
        return futures

    def begin_long(self, job: Job, cost: float) -> "Future[None]":
        """Begins a job that may take long; `cost` is what a like one took, in seconds."""
        future: Future[None] = Future()
        self._long.put((cost, next(self._numbers), job, future))
        return future

    def consume(self, matcher: "LLMatcher", token_id: int) -> None:
        """The matcher's `consume_token` without Python's lock, which it holds for as long as it
        takes. llguidance lets go of it for two matchers or more."""
        self._executor.consume_token_par(
            [(matcher, token_id), (self._failed_matcher.deep_copy(), token_id)]
        )

    def stop(self) -> None:
        """Ends the threads, once they have done what they are at. Waits for none."""
        self._long.put((-1.0, next(self._numbers), lambda: None, None))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run_long(self) -> None:
        # Not at a lower priority: it would keep Python's lock while others have its core.
        while True:
            _, _, job, future = self._long.get()
            if future is None:
                return
            _run(job, future)
            self._wake()


def _run_each(jobs: Iterator[tuple[Job, "Future[None]"]]) -> None:
    for job, future in jobs:
        _run(job, future)


def _run(job: Job, future: "Future[None]") -> None:
    try:
        job()
    except Exception as failure:
        future.set_exception(failure)
    except BaseException as panic:  # of Rust: to who waits it is a failure as any other
        future.set_exception(RuntimeError(f"a panic: {panic}"))
    else:
        future.set_result(None)

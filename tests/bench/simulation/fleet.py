"""Replicas in simulated time: continuous batching over real page accounting, no arithmetic.

A step takes what its tokens take; prompts are computed in chunks, in order, beside the decodes.
"""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.model.reporter import Gauges
from kv.pool import PagePool
from tests.bench.simulation.traces import PAGE_SIZE, Turn

STEP_S = 0.008
PREFILL_S = 1 / 8000  # a token
DECODE_S = 0.0005  # a row
BUDGET = 512  # tokens a step
MAX_RUNNING = 64
# What a token adds to a replica's work; a decode's share of the step is that of a batch of eight.
PREFILL_WORK_S = PREFILL_S
DECODE_WORK_S = DECODE_S + STEP_S / 8


class Clock:
    """Runs what is due, in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), call))

    def run(self) -> None:
        while self._due:
            self.now, _, call = heapq.heappop(self._due)
            call()


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way through a replica."""

    name: str
    turn: Turn
    sent: float
    done: Callable[["Job"], None]
    pages: list[int] = field(default_factory=list)
    cached: int = 0  # pages of the prompt that had not to be computed
    computed: int = 0  # tokens known to the cache
    produced: int = 0
    first: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return len(self.turn.prompt) * PAGE_SIZE + 1

    @property
    def answer_tokens(self) -> int:
        return len(self.turn.answer) * PAGE_SIZE

    @property
    def left(self) -> int:
        """Prompt tokens to compute."""
        return max(0, self.prompt_tokens - self.computed)

    @property
    def work(self) -> float:
        """Seconds of work to come."""
        decodes = self.answer_tokens - self.produced
        return self.left * PREFILL_WORK_S + decodes * DECODE_WORK_S


class Replica:
    """`pool` holds what the real cache would; `work` is all that was computed, in seconds."""

    def __init__(self, name: str, n_pages: int, clock: Clock) -> None:
        self.name = name
        self.pool = PagePool(n_pages)
        self.work = 0.0
        self.in_flight: Counter[bytes] = Counter()  # prompt pages of all jobs here
        self.jobs: dict[Job, None] = {}
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._step = 0  # its number; one that was cut short has an end that no longer counts
        self._began = 0.0
        self._each_s = 0.0
        self._repeats = 0  # steps in a row that are alike
        self._ending: tuple[list[Job], list[tuple[Job, int]]] = [], []
        self._last_busy = 0.0

    def submit(self, job: Job) -> None:
        self.jobs[job] = None
        self.in_flight.update(job.turn.prompt)
        self._waiting.append(job)
        if not self._repeats:
            self._begin()
        elif self._repeats > 1:
            self._cut_short()

    def overlap(self, prompt: tuple[bytes, ...]) -> int:
        """Leading pages that are here, or will be when a job sent now is admitted."""
        for n, page_hash in enumerate(prompt):
            if page_hash not in self.in_flight and self.pool.prefix_cache.lookup(page_hash) is None:
                return n
        return len(prompt)

    def work_left(self) -> float:
        return sum(job.work for job in self.jobs)

    def gauges(self) -> Gauges:
        return Gauges(
            running=len(self._running),
            waiting=len(self._waiting),
            pending_tokens=sum(job.left for job in self.jobs),
            context_tokens=sum(job.prompt_tokens + job.produced for job in self.jobs),
            pages_used=self.pool.n_used,
            pages_total=self.pool.n_pages,
            page_size=PAGE_SIZE,
            idle_s=0.0 if self.jobs else self._clock.now - self._last_busy,
        )

    def _begin(self) -> None:
        while self._waiting and len(self._running) < MAX_RUNNING and self._admit(self._waiting[0]):
            self._running.append(self._waiting.popleft())
        for job in self._running:
            self._adopt(job)
        rows = [job for job in self._running if not job.left]
        chunks = self._chunks(BUDGET - len(rows))
        self._began = self._clock.now
        self._each_s = STEP_S + DECODE_S * len(rows) + PREFILL_S * sum(n for _, n in chunks)
        alike = [job.answer_tokens - job.produced for job in rows]
        self._repeats = 1 if chunks or self._waiting else min(alike, default=0)
        if self._repeats:
            self._end_after(rows, chunks)

    def _end_after(self, rows: list[Job], chunks: list[tuple[Job, int]]) -> None:
        self._step += 1
        step, self._ending = self._step, (rows, chunks)
        self._clock.at(self._began + self._each_s * self._repeats, lambda: self._end(step))

    def _cut_short(self) -> None:
        """The steps that are under way end with the one that runs now."""
        ran = (self._clock.now - self._began) / self._each_s
        self._repeats = min(self._repeats, int(ran) + 1)
        self._end_after(*self._ending)

    def _admit(self, job: Job) -> bool:
        matched = self.pool.match(job.turn.prompt)
        n_pages = len(job.turn.prompt) + len(job.turn.answer) + 1
        rest = self.pool.allocate(n_pages - len(matched))
        if rest is None:
            self.pool.free(matched)
            return False
        job.pages = [*matched, *rest]
        job.cached = len(matched)
        job.computed = len(matched) * PAGE_SIZE
        return True

    def _adopt(self, job: Job) -> None:
        """Takes over what others have computed since."""
        while job.left > 1 and job.computed % PAGE_SIZE == 0:
            at = job.computed // PAGE_SIZE
            if self.pool.prefix_cache.lookup(job.turn.prompt[at]) is None:
                return
            job.pages[at] = self.pool.record(job.pages[at], job.turn.prompt[at])
            job.computed += PAGE_SIZE
            job.cached += 1

    def _chunks(self, budget: int) -> list[tuple[Job, int]]:
        chunks, in_flight = [], set[bytes]()
        for job in self._running:
            at = job.computed // PAGE_SIZE
            n = min(job.left, budget)
            if not n or not in_flight.isdisjoint(job.turn.prompt[at : at + 1]):
                continue
            chunks.append((job, n))
            budget -= n
            in_flight.update(job.turn.prompt[at : (job.computed + n) // PAGE_SIZE])
        return chunks

    def _end(self, step: int) -> None:
        if step != self._step:
            return
        rows, chunks = self._ending
        repeats, self._repeats = self._repeats, 0
        for job, n in chunks:
            self._compute(job, n)
        for job in rows:
            job.produced += repeats
        self.work += len(rows) * repeats * DECODE_WORK_S
        self.work += sum(n for _, n in chunks) * PREFILL_WORK_S
        for job in [job for job in self._running if job.produced >= job.answer_tokens]:
            self._finish(job)
        self._begin()

    def _compute(self, job: Job, n: int) -> None:
        first = job.computed // PAGE_SIZE
        job.computed += n
        last = min(job.computed // PAGE_SIZE, len(job.turn.prompt))
        for at in range(first, last):
            job.pages[at] = self.pool.record(job.pages[at], job.turn.prompt[at])
        if not job.left:
            job.first = self._clock.now
            job.produced = 1

    def _finish(self, job: Job) -> None:
        self._running.remove(job)
        for at, page_hash in enumerate(job.turn.answer, len(job.turn.prompt)):
            job.pages[at] = self.pool.record(job.pages[at], page_hash)
        self.pool.free(job.pages)
        del self.jobs[job]
        for page_hash in job.turn.prompt:
            self.in_flight[page_hash] -= 1
            if not self.in_flight[page_hash]:
                del self.in_flight[page_hash]
        self._last_busy = self._clock.now
        job.done(job)

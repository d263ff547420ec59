"""Decides what runs: one loop of cleanup, refill, plan -> run -> commit.

A step is rows of (task, n tokens) under one token budget; prompts' chunks and decodes share it.
Of waiting tasks the lowest priority value, then the oldest, runs first. When pages run out the last
by that order is preempted and later recomputed; none is failed for it.
"""

import heapq
import itertools
import logging
import queue
import threading
import time
from bisect import insort
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace

from deployments.engine.mailbox import Mailbox, deliver
from deployments.engine.runner import Result, Row, Runner
from deployments.engine.sampling import Sample
from deployments.engine.task import Task
from deployments.wire import ErrorKind, FinishReason, RequestError, TokenEvent, TokenLogprob
from kv.cache import KVCache

log = logging.getLogger(__name__)

# So many failed steps in a row are no longer the rows' fault.
MAX_FAILED_STEPS = 3


@dataclass(slots=True)
class EngineStats:
    """Counters since the start, and gauges of now."""

    active_requests: int = 0
    waiting_requests: int = 0
    total_requests: int = 0
    aborted_requests: int = 0
    cache_usage: float = 0.0  # share of pages held by tasks, 0 to 1
    tokens_generated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    failed_steps: int = 0
    pages_used: int = 0
    pages_total: int = 0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Blocked:
    """The head of the queue, when it did not fit: more room or one more cached page may help."""

    task: Task
    room: int
    next_page: Sequence[bytes]  # hash of its first page that was not cached, if any


class InferenceScheduler:
    """Runs tasks to their end on a thread of its own; `add`, `abort` and `stop` are for others."""

    def __init__(
        self,
        runner: Runner,
        cache: KVCache,
        *,
        max_running: int,
        max_batch_tokens: int,
    ) -> None:
        assert max_batch_tokens >= max_running, "every running task must fit in a step"
        self._runner = runner
        self._cache = cache
        self._max_running = max_running
        self._max_batch_tokens = max_batch_tokens
        self._closing = threading.Lock()
        self._closed = False
        self._n_arriving = 0  # tasks in the inbox
        self._inbox: queue.SimpleQueue[Task | str | None] = queue.SimpleQueue()
        self._arrivals = itertools.count()
        self._waiting: list[tuple[tuple[int, int], Task]] = []  # a heap by the tasks' order
        self._running: list[Task] = []  # by their order
        self._blocked: Blocked | None = None
        self._events: list[tuple[Mailbox, TokenEvent]] = []
        self._failures = 0
        self._stopping = False
        self._stats = EngineStats(pages_total=cache.pool.n_pages)
        self._busy_since: float | None = None
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="engine", daemon=True
        )
        self._thread.start()
        started.result()

    def add(self, task: Task) -> None:
        """Accepts a task: from here on it gets exactly one terminal event, whatever happens."""
        with self._closing:
            if not self._closed:
                self._n_arriving += 1
                self._inbox.put(task)
                return
        deliver([(task.mailbox, STOPPED)])

    def abort(self, name: str) -> None:
        """Ends a task, or all of a request's; unknown names are tasks that ended already."""
        self._inbox.put(name)

    def stop(self) -> None:
        """Ends all tasks and the thread."""
        self._inbox.put(None)
        self._thread.join()

    @property
    def n_waiting(self) -> int:
        return len(self._waiting) + self._n_arriving

    @property
    def alive(self) -> bool:
        """Whether it takes tasks: not so from the moment that its loop ends."""
        return self._thread.is_alive() and not self._closed

    def stuck_for(self) -> float:
        """Seconds since the step in progress began; 0 between steps."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def stats(self) -> EngineStats:
        """What they are at this moment; a step in progress is not in them."""
        return replace(
            self._stats,
            active_requests=len(self._running),
            waiting_requests=self.n_waiting,
            pages_used=self._cache.pool.n_used,
            cache_usage=self._cache.usage,
        )

    def _serve(self, started: "Future[None]") -> None:
        try:
            self._runner.start()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            while not self._stopping:
                self._turn()
            for task in self._running:
                self._cache.free(task.id)
        except Exception:
            log.exception("the engine cannot go on")
        finally:
            self._end_all()

    def _turn(self) -> None:
        self._receive()
        self._refill()
        if rows := self._plan():
            self._step(rows)
        self._deliver()

    def _receive(self) -> None:
        """Takes in what has come; waits for something when there is nothing to do."""
        idle = not (self._running or self._waiting)
        while idle or not self._inbox.empty():
            message = self._inbox.get()
            idle = False
            if message is None:
                self._stopping = True
            elif isinstance(message, Task):
                self._stats.total_requests += 1
                message.arrival = next(self._arrivals)
                self._wait(message)
                with self._closing:
                    self._n_arriving -= 1
            else:
                self._cancel(message)

    def _cancel(self, name: str) -> None:
        for task in [task for task in self._running if task.is_called(name)]:
            self._stats.aborted_requests += 1
            self._finish(task, ABORTED)
        for item in [item for item in self._waiting if item[1].is_called(name)]:
            self._stats.aborted_requests += 1
            self._waiting.remove(item)
            heapq.heapify(self._waiting)
            self._post(item[1], ABORTED)

    def _wait(self, task: Task) -> None:
        heapq.heappush(self._waiting, (task.order, task))

    def _refill(self) -> None:
        """Admits waiting tasks, in order, while their known tokens fit beside the others'."""
        spare = sum(self._cache.missing(task.id, task.n_tokens + 1) for task in self._running)
        while self._waiting and len(self._running) < self._max_running:
            _, task = self._waiting[0]
            if not self._admit(task, spare):
                return
            task.n_computed = self._cache.cached_tokens(task.id)
            spare += self._cache.missing(task.id, task.n_tokens + 1)
            heapq.heappop(self._waiting)
            insort(self._running, task, key=lambda task: task.order)

    def _admit(self, task: Task, spare: int) -> bool:
        """Pages for a waiting task beside `spare` ones; a look at each, unless it must be vain."""
        room = self._cache.pool.n_available - spare
        if self._still_blocked(task, room):
            return False
        hashes = task.usable_pages(self._cache.shape.page_size)
        admitted = self._cache.allocate(task.id, hashes, task.n_tokens, spare)
        next_page = hashes[self._cache.find(hashes) :][:1]
        self._blocked = None if admitted else Blocked(task, room, next_page)
        return admitted

    def _still_blocked(self, task: Task, room: int) -> bool:
        blocked = self._blocked
        if blocked is None or blocked.task is not task or room > blocked.room:
            return False
        return not self._cache.find(blocked.next_page)

    def _plan(self) -> list[Row]:
        """Rows of the next step: first those that draw with one token, then prompts in order."""
        rows: dict[Task, Row] = {}
        budget = self._max_batch_tokens
        coming: set[bytes] = set()  # pages that this step will make findable
        for task in sorted(self._running, key=lambda task: task.n_uncomputed > 1):
            if budget == 0:
                break
            if task.id not in self._cache.table:  # preempted by one before it
                continue
            if self._awaits(task, coming):
                continue
            n = min(task.n_uncomputed, budget)
            if not self._make_room(task, task.n_computed + n, rows):
                continue
            rows[task] = Row(task, n)
            budget -= n
            coming.update(self._full_pages(task, n))
        return list(rows.values())

    def _awaits(self, task: Task, coming: set[bytes]) -> bool:
        """Whether the task's next page is being computed for another one.

        Adopts what others have computed since it was admitted.
        """
        page_size = self._cache.shape.page_size
        if task.n_unscored:  # every position has to be computed
            return False
        if task.n_uncomputed <= page_size or task.n_computed % page_size:
            return False
        first = task.n_computed // page_size
        following = task.hashes[first : (task.n_tokens - 1) // page_size]
        adopted = self._cache.adopt(task.id, following)
        task.n_computed += adopted * page_size
        return adopted < len(following) and following[adopted] in coming

    def _make_room(self, task: Task, n_tokens: int, rows: dict[Task, Row]) -> bool:
        """Pages for the task, taken from the last one if need be; False if it is the last."""
        while not self._cache.extend(task.id, n_tokens):
            last = self._running[-1]
            self._preempt(last)
            rows.pop(last, None)
            if last is task:
                return False
        return True

    def _preempt(self, task: Task) -> None:
        """Back to where it came from in the queue; its full pages stay findable until evicted."""
        self._cache.free(task.id)
        self._running.remove(task)
        task.n_computed = 0
        self._wait(task)
        self._stats.preemptions += 1

    def _full_pages(self, task: Task, n: int) -> list[bytes]:
        page_size = self._cache.shape.page_size
        hashes = task.hash_pages(page_size)
        return hashes[task.n_computed // page_size : (task.n_computed + n) // page_size]

    def _step(self, rows: Sequence[Row]) -> None:
        self._busy_since = time.monotonic()
        try:
            results = self._runner.run(rows)
        except Exception as error:
            self._fail(rows, error)
        else:
            self._failures = 0
            for row, result in zip(rows, results, strict=True):
                self._commit(row, result)
        finally:
            self._busy_since = None
        self._stats.steps += 1

    def _fail(self, rows: Sequence[Row], error: Exception) -> None:
        """A failed step fails its rows; their pages hold nothing that could be trusted."""
        log.error("a step of %d rows failed", len(rows), exc_info=error)
        self._stats.failed_steps += 1
        self._failures += 1
        for row in rows:
            self._finish(row.task, failed("the model failed on this request"))
        if self._failures >= MAX_FAILED_STEPS:
            raise RuntimeError(f"{self._failures} steps failed in a row") from error

    def _commit(self, row: Row, result: Result) -> None:
        task = row.task
        full_pages = self._full_pages(task, row.n)
        if not result.is_finite:
            # What it was computed from may be broken too: nobody should find that any more.
            self._cache.forget(task.id)
            self._finish(task, failed("the model's output was not finite"))
            return
        self._cache.record(task.id, task.n_computed // self._cache.shape.page_size, full_pages)
        task.n_computed += row.n
        task.prompt_logprobs.extend(result.prompt_logprobs)
        if result.sample is not None:
            self._emit(task, result.sample)
        elif task.n_computed == task.n_tokens:
            self._emit(task, None)

    def _emit(self, task: Task, sample: Sample | None) -> None:
        """What came of a task's last known token: the next one, or its end."""
        prompt_logprobs = self._begin(task) if task.is_fresh else None
        token_id = None if sample is None else sample.token_id
        if token_id is not None:
            task.append(token_id)
            self._stats.tokens_generated += 1
        elif sample is not None:
            task.stall()
        if task.failure:
            self._finish(task, failed(task.failure, ErrorKind.INVALID_REQUEST))
            return
        event = TokenEvent(
            token_ids=() if token_id is None else (token_id,),
            logprobs=(sample.logprob,) if sample and sample.logprob else None,
            prompt_logprobs=prompt_logprobs,
            mirostat_mu=sample.mirostat_mu if sample else None,
            finish_reason=task.finish_reason(),
            stop_token_id=task.end_token(),
            cached_tokens=task.cached_tokens,
        )
        if event.finish_reason is None:
            self._post(task, event)
        else:
            self._finish(task, event)

    def _begin(self, task: Task) -> tuple[TokenLogprob | None, ...] | None:
        """Accounts for the prompt, and says what its tokens' log-probabilities are."""
        task.cached_tokens = min(self._cache.cached_tokens(task.id), task.n_prompt)
        self._stats.prompt_tokens += task.n_prompt
        self._stats.cached_tokens += task.cached_tokens
        if task.request.prompt_logprobs is None or task.request.produced_ids:
            return None
        return (None, *task.prompt_logprobs)

    def _finish(self, task: Task, event: TokenEvent) -> None:
        self._running.remove(task)
        self._post(task, event)
        self._cache.free(task.id)

    def _post(self, task: Task, event: TokenEvent) -> None:
        self._events.append((task.mailbox, event))

    def _deliver(self) -> None:
        events, self._events = self._events, []
        deliver(events)

    def _end_all(self) -> None:
        """Every accepted task ends, also when the loop does."""
        with self._closing:
            self._closed = True
        arrived = [self._inbox.get() for _ in range(self._inbox.qsize())]
        tasks = [*self._running, *(task for _, task in self._waiting), *arrived]
        for task in tasks:
            if isinstance(task, Task):
                self._post(task, STOPPED)
        self._running.clear()
        self._waiting.clear()
        self._deliver()


def failed(message: str, kind: ErrorKind = ErrorKind.INTERNAL) -> TokenEvent:
    return TokenEvent(finish_reason=FinishReason.ERROR, error=RequestError(kind, message))


ABORTED = TokenEvent(finish_reason=FinishReason.ABORT)
STOPPED = failed("the engine stopped", ErrorKind.UNAVAILABLE)

"""Decides what runs: one loop of cleanup, refill, plan -> run -> commit.

A step is rows of (task, n tokens) under one token budget; prompts' chunks and decodes share it.
When pages run out the youngest task is preempted and later recomputed; none is failed for it.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace

from deployments.engine.mailbox import Mailbox, deliver
from deployments.engine.runner import Row, Runner
from deployments.engine.sampling import Sample
from deployments.engine.task import Task
from deployments.wire import ErrorKind, FinishReason, RequestError, TokenEvent
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
        self._waiting: deque[Task] = deque()
        self._running: list[Task] = []  # oldest first
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
                self._receive()
                self._refill()
                rows = self._plan()
                if rows:
                    self._step(rows)
                self._deliver()
            for task in self._running:
                self._cache.free(task.id)
        except Exception:
            log.exception("the engine cannot go on")
        finally:
            self._end_all()

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
                self._waiting.append(message)
                with self._closing:
                    self._n_arriving -= 1
            else:
                self._cancel(message)

    def _cancel(self, name: str) -> None:
        for task in [task for task in self._running if task.is_called(name)]:
            self._stats.aborted_requests += 1
            self._finish(task, ABORTED)
        for task in [task for task in self._waiting if task.is_called(name)]:
            self._stats.aborted_requests += 1
            self._waiting.remove(task)
            self._post(task, ABORTED)

    def _refill(self) -> None:
        """Admits waiting tasks, oldest first, while their known tokens fit beside the others'."""
        spare = sum(self._cache.missing(task.id, task.n_tokens + 1) for task in self._running)
        while self._waiting and len(self._running) < self._max_running:
            task = self._waiting[0]
            if not self._admit(task, spare):
                return
            task.n_computed = self._cache.cached_tokens(task.id)
            spare += self._cache.missing(task.id, task.n_tokens + 1)
            self._running.append(self._waiting.popleft())

    def _admit(self, task: Task, spare: int) -> bool:
        """Pages for a waiting task beside `spare` ones; a look at each, unless it must be vain."""
        room = self._cache.pool.n_available - spare
        if self._still_blocked(task, room):
            return False
        hashes = task.hash_pages(self._cache.shape.page_size)
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
        """Rows of the next step: first those that draw with one token, then the oldest prompts."""
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
        if task.n_uncomputed <= page_size or task.n_computed % page_size:
            return False
        first = task.n_computed // page_size
        following = task.hashes[first : (task.n_tokens - 1) // page_size]
        adopted = self._cache.adopt(task.id, following)
        task.n_computed += adopted * page_size
        return adopted < len(following) and following[adopted] in coming

    def _make_room(self, task: Task, n_tokens: int, rows: dict[Task, Row]) -> bool:
        """Pages for the task, taken from the youngest if need be; False if it is the youngest."""
        while not self._cache.extend(task.id, n_tokens):
            youngest = self._running[-1]
            self._preempt(youngest)
            rows.pop(youngest, None)
            if youngest is task:
                return False
        return True

    def _preempt(self, task: Task) -> None:
        """Back to the head of the queue; its full pages stay findable until they are evicted."""
        self._running.remove(task)
        self._cache.free(task.id)
        task.n_computed = 0
        self._waiting.appendleft(task)
        self._stats.preemptions += 1

    def _full_pages(self, task: Task, n: int) -> list[bytes]:
        page_size = self._cache.shape.page_size
        hashes = task.hash_pages(page_size)
        return hashes[task.n_computed // page_size : (task.n_computed + n) // page_size]

    def _step(self, rows: Sequence[Row]) -> None:
        self._busy_since = time.monotonic()
        try:
            samples = self._runner.run(rows)
        except Exception as error:
            self._fail(rows, error)
        else:
            self._failures = 0
            for row, sample in zip(rows, samples, strict=True):
                self._commit(row, sample)
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

    def _commit(self, row: Row, sample: Sample | None) -> None:
        task = row.task
        full_pages = self._full_pages(task, row.n)
        if sample is not None and sample.token_id is None:
            # What it was computed from may be broken too: nobody should find that any more.
            self._cache.forget(task.id)
            self._finish(task, failed("the model's output was not finite"))
            return
        self._cache.record(task.id, task.n_computed // self._cache.shape.page_size, full_pages)
        task.n_computed += row.n
        if sample is not None and sample.token_id is not None:
            self._emit(task, sample, sample.token_id)

    def _emit(self, task: Task, sample: Sample, token_id: int) -> None:
        if task.is_fresh:
            task.cached_tokens = min(self._cache.cached_tokens(task.id), task.n_prompt)
            self._stats.prompt_tokens += task.n_prompt
            self._stats.cached_tokens += task.cached_tokens
        task.append(token_id)
        self._stats.tokens_generated += 1
        reason = task.finish_reason()
        event = TokenEvent(
            token_ids=(token_id,),
            logprobs=None if sample.logprob is None else (sample.logprob,),
            finish_reason=reason,
            stop_token_id=token_id if reason is FinishReason.STOP else None,
            cached_tokens=task.cached_tokens,
        )
        if reason is None:
            self._post(task, event)
        else:
            self._finish(task, event)

    def _finish(self, task: Task, event: TokenEvent) -> None:
        self._running.remove(task)
        self._cache.free(task.id)
        self._post(task, event)

    def _post(self, task: Task, event: TokenEvent) -> None:
        self._events.append((task.mailbox, event))

    def _deliver(self) -> None:
        events, self._events = self._events, []
        deliver(events)

    def _end_all(self) -> None:
        """Every accepted task ends, also when the loop does."""
        with self._closing:
            self._closed = True
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Task):
                self._waiting.append(message)
        for task in (*self._running, *self._waiting):
            self._post(task, STOPPED)
        self._running.clear()
        self._waiting.clear()
        self._deliver()


def failed(message: str, kind: ErrorKind = ErrorKind.INTERNAL) -> TokenEvent:
    return TokenEvent(finish_reason=FinishReason.ERROR, error=RequestError(kind, message))


ABORTED = TokenEvent(finish_reason=FinishReason.ABORT)
STOPPED = failed("the engine stopped", ErrorKind.UNAVAILABLE)

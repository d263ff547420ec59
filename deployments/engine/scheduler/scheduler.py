"""Decides what runs: one loop of cleanup, refill, plan -> run -> commit.

A step is rows of (task, n tokens) under one token budget; prompts' chunks and decodes share it.
Where steps are ahead of the host, one is launched while the one before it is in flight.
Of waiting tasks the first by `Task.order` runs first. When pages run out the last by that order is
preempted and later recomputed; none is failed for it.
"""

import itertools
import logging
import queue
import threading
import time
from bisect import insort
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from deployments.engine.parallel.ranks import RanksLostError
from deployments.engine.runner import Outcome, Runner
from deployments.engine.sampling.sampler import Sample
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.async_launcher import Launcher
from deployments.engine.scheduler.drafter import Drafter
from deployments.engine.scheduler.fair_queue import Blocked, WaitingQueue
from deployments.engine.scheduler.planner import Planner
from deployments.engine.scheduler.prefill_pacer import Pace
from deployments.engine.scheduler.recovery import (
    ABORTED,
    FAILED,
    OUT_OF_MEMORY,
    STOPPED,
    Recovery,
    is_out_of_memory,
    release_memory,
)
from deployments.engine.stats import EngineStats, count_tokens
from deployments.engine.tasks.batch import Rows
from deployments.engine.tasks.mailbox import Mailbox, deliver
from deployments.engine.tasks.task import Task
from deployments.wire import ErrorKind, TokenEvent, TokenLogprob
from kv.cache import KVCache

log = logging.getLogger(__name__)

# Prompts have at least so much of the largest step, even where streams are slower than they should.
LEAST_PART = 16


class InferenceScheduler:
    """Runs tasks to their end on a thread of its own; `add`, `abort` and `stop` are for others."""

    def __init__(
        self,
        runner: Runner,
        cache: KVCache,
        admission: Admission,
        *,
        max_running: int,
        max_batch_tokens: int,
        target_itl_s: float | None = None,
        is_ahead: bool = False,
        drafter: Drafter | None = None,
    ) -> None:
        """`is_ahead`: a step that is a function of what the last one draws, and of nothing else
        that came of it, is launched before that is known."""
        assert max_batch_tokens >= max_running, "every running task must fit in a step"
        self._runner = runner
        self._cache = cache
        self._max_running = max_running
        self._admission = admission
        self._recovery = Recovery(max_batch_tokens)
        self._pace = Pace(target_itl_s, max(cache.shape.page_size, max_batch_tokens // LEAST_PART))
        self._planner = Planner(cache, self._pace, self._preempt_last, drafter)
        self._closing = threading.Lock()
        self._closed = False
        self._inbox: queue.SimpleQueue[Task | str | None] = queue.SimpleQueue()
        self._arrivals = itertools.count()
        self._waiting = WaitingQueue()
        self._running: list[Task] = []  # by their order
        self._launcher = Launcher(runner, cache, self._planner, self._recovery, is_ahead)
        self._blocked: Blocked | None = None
        self._events: list[tuple[Mailbox, TokenEvent]] = []
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
        """Accepts an admitted task, which from here on gets exactly one terminal event."""
        with self._closing:
            if not self._closed:
                self._inbox.put(task)
                return
        self._admission.leave(task)
        deliver([(task.mailbox, STOPPED)])

    def abort(self, name: str) -> None:
        """Ends a task, or all of a request's; unknown names are tasks that ended already."""
        self._inbox.put(name)

    def stop(self) -> None:
        """Ends all tasks and the thread."""
        self._inbox.put(None)
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it takes tasks: not so from the moment that its loop ends."""
        return self._thread.is_alive() and not self._closed

    def stuck_for(self) -> float:
        """Seconds since the step in progress began, or had its turn; 0 between steps."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def stats(self) -> EngineStats:
        """What they are at this moment; a step in progress is not in them."""
        running, waiting = self._running.copy(), self._admission.tasks()
        pending_tokens, context_tokens = count_tokens([*running, *waiting])
        return replace(
            self._stats,
            active_requests=len(running),
            waiting_requests=len(waiting),
            pending_tokens=pending_tokens,
            context_tokens=context_tokens,
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
        rows = self._plan() if self._launcher.flight is None else self._launcher.flight.rows
        if rows.tasks:
            self._step(rows)
        self._deliver()

    def _receive(self) -> None:
        """Takes in what has come; waits for something when there is nothing to do."""
        idle = not (self._running or self._waiting or self._launcher.flight)
        if idle:
            self._waiting.forget()
        while idle or not self._inbox.empty():
            message = self._inbox.get()
            idle = False
            if message is None:
                self._stopping = True
            elif isinstance(message, Task):
                self._stats.total_requests += 1
                message.arrival = next(self._arrivals)
                self._waiting.push(message)
            else:
                self._cancel(message)

    def _cancel(self, name: str) -> None:
        for task in [task for task in self._running if task.is_called(name)]:
            self._stats.aborted_requests += 1
            self._finish(task, ABORTED)
        for task in [task for task in self._waiting if task.is_called(name)]:
            self._stats.aborted_requests += 1
            self._waiting.remove(task)
            self._admission.leave(task)
            self._post(task, ABORTED)

    def _refill(self) -> None:
        """Admits waiting tasks, in order, while their known tokens fit beside the others'."""
        if not self._waiting or len(self._running) >= self._max_running:
            return
        spare = self._cache.missing_in_all(
            [task.id for task in self._running], [task.n_tokens + 1 for task in self._running]
        )
        while self._waiting and len(self._running) < self._max_running:
            task = self._waiting.head
            if not self._admit(task, spare):
                return
            task.n_computed = self._cache.cached_tokens(task.id)
            spare += self._cache.missing(task.id, task.n_tokens + 1)
            self._waiting.pop()
            insort(self._running, task, key=lambda task: task.order)
            self._admission.leave(task)
            self._tell(task)

    def _admit(self, task: Task, spare: int) -> bool:
        """Pages for a waiting task beside `spare` ones; a look at each, unless it must be vain."""
        room = self._cache.pool.n_available - spare
        if self._blocked is not None and self._blocked.still(task, room, self._cache):
            return False
        hashes = task.usable_pages(self._cache.shape.page_size)
        admitted = self._cache.allocate(task.id, hashes, task.n_tokens, spare)
        next_page = hashes[self._cache.find(hashes) :][:1]
        self._blocked = None if admitted else Blocked(task, room, next_page)
        return admitted

    def _preempt_last(self) -> Task:
        """Back to where it came from in the queue; its full pages stay findable until evicted."""
        task = self._running.pop()
        task.most_cached = min(task.most_cached, self._cache.cached_tokens(task.id))
        self._cache.free(task.id)
        task.n_computed = 0
        self._waiting.put_back(task)
        self._admission.enter(task)
        self._stats.preemptions += 1
        return task

    def _plan(self) -> Rows:
        tasks = self._recovery.choose(self._running)
        return self._planner.plan(tasks, self._recovery.budget)

    def _step(self, rows: Rows) -> None:
        """Launches the rows unless they are in flight, and what may follow them; takes in what
        they came to."""
        failure = None
        with self._busy():
            try:
                outcome = self._launcher.fly(rows, len(self._running))
            except RanksLostError:
                raise
            except Exception as error:
                named = ", ".join(task.request.request_id for task in rows.tasks)
                log.error("a step failed, of %s", named, exc_info=error)
                failure = OUT_OF_MEMORY if is_out_of_memory(error) else FAILED
            else:
                self._recovery.succeed()
                self._time(rows)
                self._commit(rows, outcome)
        if failure is not None:  # the error is gone, and with it the tensors that it held
            self._fail(rows, failure)
        self._stats.steps += 1

    def _time(self, rows: Rows) -> None:
        assert self._busy_since is not None
        n_prompts = rows.n_prompts
        self._pace.observe(sum(rows.n) - n_prompts, n_prompts, self.stuck_for())

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._busy_since = self._busy_since or time.monotonic()
        try:
            yield
        finally:
            self._busy_since = time.monotonic() if self._launcher.flight else None

    def _fail(self, rows: Rows, failure: TokenEvent) -> None:
        """Its rows are as they were, and will be tried again; or the only one has failed."""
        self._stats.failed_steps += 1
        rows = rows.left()
        if not rows.tasks:
            return
        for task in rows.tasks:
            self._cache.retract(task.id, task.n_computed)
            task.rewind()
        if failure is OUT_OF_MEMORY:
            release_memory()
        if self._recovery.fail(rows, out_of_memory=failure is OUT_OF_MEMORY):
            self._stats.retried_rows += len(rows.tasks)
            return
        self._finish(rows.tasks[0], failure)
        if self._recovery.is_in_doubt:
            with self._busy():
                self._runner.probe()  # an engine that can't even do this can't go on
            self._recovery.trust()

    def _commit(self, rows: Rows, outcome: Outcome) -> None:
        for place, samples in enumerate(outcome.samples):
            task, scored = rows.tasks[place], outcome.prompt_logprobs.get(place, ())
            if task.has_ended:  # in flight
                continue
            if outcome.is_finite(place):
                self._advance(task, rows.n[place] - task.n_drafted, scored)
                self._tell(task)
                task.drafted_tokens += task.n_drafted
                if samples or task.n_computed == task.n_tokens:
                    self._emit(task, samples[0] if samples else None)
                if task.n_drafted:
                    self._accept(task, samples[1:])
            else:
                # What it was computed from may be broken too: nobody should find that any more.
                self._cache.forget(task.id)
                self._finish(task, TokenEvent.failed("the model's output was not finite"))

    def _advance(self, task: Task, n: int, scored: Sequence[TokenLogprob]) -> None:
        """Its next `n` tokens are computed."""
        page_size = self._cache.shape.page_size
        if full_pages := task.filled_by(n, page_size):
            self._cache.record(task.id, task.n_computed // page_size, full_pages)
        task.n_computed += n
        task.last_step = self._stats.steps
        task.prompt_logprobs.extend(scored)

    def _accept(self, task: Task, samples: Sequence[Sample]) -> None:
        """What was drawn behind those of its drafted tokens that were right."""
        self._stats.drafted_tokens += task.n_drafted
        assert task.drafts is not None
        task.drafts.learn(task.n_drafted, len(samples), task.n_tokens)
        task.n_drafted = 0
        for sample in samples:
            if not task.has_ended:
                self._stats.accepted_tokens += 1
                task.accepted_tokens += 1
                self._advance(task, 1, ())
                self._emit(task, sample)
        if not task.has_ended:
            self._cache.retract(task.id, task.n_computed)

    def _emit(self, task: Task, sample: Sample | None) -> None:
        """What came of a task's last known token: the next one, or its end."""
        prompt_logprobs = self._begin(task) if task.is_fresh else None
        token_id = None if sample is None else sample.token_id
        if token_id is not None:
            task.append(token_id)
            task.trusted_mu = task.mirostat_mu
            self._stats.tokens_generated += 1
        elif sample is not None:
            task.stall()
        if task.failure:
            self._finish(task, TokenEvent.failed(task.failure, ErrorKind.INVALID_REQUEST))
            return
        drafted, accepted = task.take_drafted()
        event = TokenEvent(
            token_ids=() if token_id is None else (token_id,),
            logprobs=(sample.logprob,) if sample and sample.logprob else None,
            prompt_logprobs=prompt_logprobs,
            mirostat_mu=sample.mirostat_mu if sample else None,
            finish_reason=task.finish_reason(),
            stop_token_id=task.end_token(),
            cached_tokens=task.cached_tokens,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
        )
        if event.finish_reason is None:
            self._post(task, event)
        else:
            self._finish(task, event)

    def _begin(self, task: Task) -> tuple[TokenLogprob | None, ...] | None:
        """Accounts for the prompt, and says what its tokens' log-probabilities are."""
        task.cached_tokens = task.count_cached(self._cache.cached_tokens(task.id))
        self._stats.prompt_tokens += task.n_prompt
        self._stats.cached_tokens += task.cached_tokens
        if task.request.prompt_logprobs is None or task.request.produced_ids:
            return None
        return (None, *task.prompt_logprobs)

    def _finish(self, task: Task, event: TokenEvent) -> None:
        task.has_ended = True
        self._running.remove(task)
        self._post(task, event)
        self._cache.free(task.id)

    def _tell(self, task: Task) -> None:
        if task.tells_progress:
            self._post(task, task.progress(self._cache.cached_tokens(task.id)))

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
        for task in (*self._running, *self._waiting, *arrived):
            if isinstance(task, Task):
                self._post(task, STOPPED)
                self._admission.leave(task)
        self._running.clear()
        self._waiting = WaitingQueue()
        self._deliver()

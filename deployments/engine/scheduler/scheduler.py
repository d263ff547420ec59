"""Decides what runs: one loop of cleanup, refill, plan -> run -> commit.

A step is rows of (task, n tokens) under one token budget; prompts' chunks and decodes share it.
With async scheduling a step is launched while the one before it is in progress.
The waiting task that is first by `Task.order` runs first. When pages run out, the running task that
is last by that order is preempted and computed again later; none is failed for it. So is one of a
client with more than its share of the running slots that another client waits for.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from deployments.contract.events import THINKING_OVER, TokenEvent
from deployments.engine.needs.need import Need, RowNeed
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.parallel.ranks import RanksLostError
from deployments.engine.runner import Runner
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.async_launcher import AsyncLauncher
from deployments.engine.scheduler.committer import Committer
from deployments.engine.scheduler.drafter import NO_DRAFTER, Drafter
from deployments.engine.scheduler.events import Outbox
from deployments.engine.scheduler.inbox import Ending, EndThinking, Inbox, Signal
from deployments.engine.scheduler.planner import Planner
from deployments.engine.scheduler.pooling_planner import PoolingPlanner, StepPlanner
from deployments.engine.scheduler.prefill_pacer import PrefillPacer
from deployments.engine.scheduler.recovery import Recovery
from deployments.engine.scheduler.running_tasks import RunningTasks
from deployments.engine.scheduler.throughput import Throughput
from deployments.engine.scheduler.waiting_room import WaitingRoom
from deployments.engine.stats import EngineStats, count_tokens
from deployments.engine.step_result import StepResult
from deployments.engine.tasks.batch import NO_ROWS, NOTHING_AHEAD, Ahead, Batch
from deployments.engine.tasks.endings import ABORTED, FAILED, OUT_OF_MEMORY, STOPPED
from deployments.engine.tasks.mailbox import deliver
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

log = logging.getLogger(__name__)

# Prompts have at least this part of the largest step, even where streams are slower than they
# should be.
MIN_PROMPT_PART = 16


class InferenceScheduler:
    """Runs tasks to their end on a thread of its own. Other threads may call public methods."""

    def __init__(
        self,
        runner: Runner,
        cache: KVCache,
        admission: Admission,
        needs: Sequence[Need] = (),
        *,
        drafter: Drafter = NO_DRAFTER,
        target_itl_s: float | None = None,
        is_async: bool = False,
    ) -> None:
        """Starts the thread, and waits until the runner has started on it.

        cache: its shape says how many tasks run, and how many tokens a step has at most.
        needs: what tasks wait for, beside their turn and pages.
        target_itl_s: seconds between tokens of a stream that prompts should not exceed.
        is_async: a step is launched before the host knows the tokens of the last one.

        Raises what `Runner.start` raises.
        """
        max_running, max_batch_tokens = cache.shape.max_tasks, cache.shape.max_new_tokens
        assert max_batch_tokens >= max_running, "every running task must fit in a step"
        self._runner = runner
        self._drafter = drafter
        self._cache = cache
        self._admission = admission
        self._recovery = Recovery(max_batch_tokens)
        min_prompt_tokens = max(cache.shape.page_size, max_batch_tokens // MIN_PROMPT_PART)
        self._pacer = PrefillPacer(target_itl_s, min_prompt_tokens)
        self._planner: StepPlanner = PoolingPlanner(cache)
        if not runner.computes_whole_prompts:
            row_needs = [need for need in needs if isinstance(need, RowNeed)]
            self._planner = Planner(cache, self._pacer, self._preempt_last, row_needs, drafter)
        self._inbox = Inbox()
        self._needs = needs
        for need in needs:
            need.start(self._inbox.wake)
        self._waiting = WaitingRoom(cache, needs)
        self._running = RunningTasks(cache)
        self._outbox = Outbox()
        self._stats = EngineStats(max_running=max_running, pages_total=cache.pool.n_pages)
        self._prompt_speed, self._decode_speed = Throughput(), Throughput()
        self._committer = Committer(cache, self._running, self._outbox, self._stats, needs)
        self._launcher = AsyncLauncher(
            runner, self._planner, self._recovery, self._choose, is_async
        )
        self._stopping = False
        self._is_slot_owed = False  # by a task of the step in progress to one that waits
        self._must_wait = False  # for a need: no running task can go on
        self._busy_since: float | None = None
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="engine", daemon=True
        )
        self._thread.start()
        started.result()

    def add(self, task: Task) -> None:
        """Accepts an admitted task, which from here on gets exactly one terminal event."""
        if not self._inbox.add(task):
            self._admission.leave(task)
            deliver([(task.mailbox, STOPPED)])

    def end(self, name: str, *, is_complete: bool) -> None:
        """Ends the task of this id, or all tasks of the request of this id. Unknown names are those
        of tasks that have ended already. One that is complete is no aborted one."""
        self._inbox.end(Ending(name, is_complete))

    def end_thinking(self, task: Task) -> None:
        """Ends the thinking of a task, of which an event tells."""
        self._inbox.end_thinking(task)

    def stop(self) -> None:
        """Ends all tasks and the thread."""
        self._inbox.stop()
        self._thread.join()
        self._runner.stop()

    @property
    def is_alive(self) -> bool:
        """Whether it takes tasks. False from the moment that its loop ends."""
        return self._thread.is_alive() and not self._inbox.is_closed

    def stuck_for(self) -> float:
        """Seconds since the step in progress began, or since it was its turn; 0 between steps."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def stats(self) -> EngineStats:
        """Counters and gauges of this moment. A step in progress is not counted."""
        # Those that wait come first: one that begins meanwhile is in both then, and not in none.
        waiting = self._admission.tasks()
        running = [*self._running]
        pending_tokens, context_tokens = count_tokens([*running, *waiting])
        return replace(
            self._stats,
            active_requests=len(running),
            waiting_requests=len(waiting),
            pending_tokens=pending_tokens,
            context_tokens=context_tokens,
            pages_used=self._cache.pool.n_used,
            cache_usage=self._cache.usage,
            prompt_throughput=self._prompt_speed.per_second(),
            generation_throughput=self._decode_speed.per_second(),
            accepted_by_position=[*self._stats.accepted_by_position],
            **{name: value for need in self._needs for name, value in need.stats().items()},
        )

    def _serve(self, started: "Future[None]") -> None:
        try:
            self._runner.start()
            self._drafter.start()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            while not self._stopping:
                self._step_once()
            for task in self._running:
                self._cache.free(task.id)
            for need in self._needs:
                need.flush()
        except Exception:
            log.exception("the engine cannot go on")
        finally:
            self._end_all()

    def _step_once(self) -> None:
        self._receive()
        self._refill()
        with self._busy():
            self._advance_needs()
            self._committer.append_deferred()
            pending = self._launcher.pending
            batch = self._plan() if pending is None else pending.batch
            if batch.tasks:
                self._step(batch)
        self._outbox.deliver()

    def _receive(self) -> None:
        """Takes in what has come; waits for something when there is nothing to do."""
        is_idle = not (self._running or self._launcher.pending)
        if is_idle and not self._waiting:
            self._waiting.reset()
        must_wait = self._must_wait or (is_idle and not self._waiting.has_next)
        endings: dict[str, bool] = {}
        for message in self._inbox.messages(wait=must_wait):
            if isinstance(message, Task) and endings:  # it may have a name of theirs again
                self._end(endings)
                endings = {}
            if message is Signal.STOP:
                self._stopping = True
            elif message is Signal.WAKE:
                pass  # and goes on
            elif isinstance(message, EndThinking):
                state = message.task.sampling_state
                if not (message.task.has_ended or state.is_thinking_over):
                    state.is_thinking_over = True
                    self._outbox.post(message.task, THINKING_OVER)
            elif isinstance(message, Task):
                self._stats.total_requests += 1
                self._waiting.push(message)
            else:
                endings[message.name] = message.is_complete or endings.get(message.name, False)
        self._end(endings)

    def _end(self, endings: Mapping[str, bool]) -> None:
        """Ends tasks by their names and those of their requests, all at once: a client that leaves
        may have had thousands. Each name says whether its tasks are complete: one with two names
        is, if either says so, for an abort of the request follows the last part of an answer."""
        if not endings:
            return

        def named(tasks: Iterable[Task]) -> dict[Task, bool]:
            found = ((task, task.names & endings.keys()) for task in tasks)
            return {task: any(endings[name] for name in names) for task, names in found if names}

        running, waiting = named(self._running), named(self._waiting)
        self._stats.aborted_requests += [*running.values(), *waiting.values()].count(False)
        for task in running:
            self._committer.finish(task, ABORTED)
        self._waiting.remove(waiting)
        for task in waiting:
            self._end_waiting(task, ABORTED)

    def _end_waiting(self, task: Task, event: TokenEvent) -> None:
        """Ends a task that has left the queue."""
        task.end()
        self._committer.forget(task)
        for need in self._needs:
            need.leave(task, is_preempted=False)
        self._admission.leave(task)
        self._outbox.post(task, event)

    def _refill(self) -> None:
        for task, event in self._waiting.unpark():
            self._end_waiting(task, event)
        self._begin(self._waiting.refill(self._running))
        while (owed := self._waiting.owed(self._running)) and self._launcher.pending is None:
            task, newest = owed
            self._preempt(newest)
            self._begin(self._waiting.admit_first(task, self._running))
        self._is_slot_owed = owed is not None

    def _begin(self, admitted: Iterable[Task]) -> None:
        for task in admitted:
            self._admission.leave(task)
            self._committer.report_progress(task)

    def _preempt_last(self) -> Task:
        task = self._running.last
        self._preempt(task)
        return task

    def _preempt(self, task: Task) -> None:
        """Puts a task that no step in progress has back into the queue."""
        self._running.preempt(task)
        for need in self._needs:
            need.leave(task, is_preempted=True)
        self._waiting.put_back(task)
        self._admission.enter(task)
        self._stats.preemptions += 1

    def _plan(self) -> Batch:
        ready = self._choose([*self._running], NOTHING_AHEAD)
        is_behind = any(need.is_behind for need in self._needs)
        self._must_wait = bool(self._running) and not ready and not is_behind
        if not ready:
            return NO_ROWS
        return self._planner.plan(self._recovery.choose(ready), self._recovery.budget)

    def _choose(self, tasks: Sequence[Task], ahead: Ahead) -> Sequence[Task]:
        """Returns those of some running tasks that the next step may have rows of."""
        if deferred := self._committer.deferred:
            tasks = [task for task in tasks if task not in deferred]
        for need in self._needs:
            tasks = need.choose(tasks, ahead)
        return tasks

    def _advance_needs(self) -> None:
        for need in self._needs:
            for task, event in need.advance(self._running):
                self._committer.finish(task, event)

    def _step(self, batch: Batch) -> None:
        """Runs a batch, or waits for it where it was launched already, and commits its result."""
        failure = None
        with self._busy():
            try:
                # The slot that is owed is free first.
                following = [] if self._is_slot_owed else [*self._running]
                result = self._launcher.run(batch, following)
            except RanksLostError:
                raise
            except Exception as error:
                names = ", ".join(task.request.request_id for task in batch.tasks)
                log.error("a step failed, of %s", names, exc_info=error)
                failure = OUT_OF_MEMORY if is_out_of_memory(error) else FAILED
            else:
                self._recovery.succeed()
                self._commit(batch, result)
        if failure is not None:  # the error is gone, and with it the tensors that it held
            self._fail(batch, failure)
        self._stats.steps += 1

    def _commit(self, batch: Batch, result: StepResult) -> None:
        """Takes in a result, and how long it took."""
        assert self._busy_since is not None
        n_prompt, seconds = batch.n_prompt_tokens, self.stuck_for()
        n_decodes, n_before = sum(batch.new_len) - n_prompt, self._stats.tokens_generated
        n_drafted = sum(task.n_drafted for task in batch.tasks)
        self._committer.commit(batch, result)
        self._drafter.observe(n_decodes, n_drafted, n_prompt, self.stuck_for())
        self._pacer.observe(n_decodes, n_prompt, seconds)
        self._prompt_speed.observe(n_prompt, seconds)
        if n_decodes:  # else these are first tokens, whose time is the prompt's
            self._decode_speed.observe(self._stats.tokens_generated - n_before, seconds)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._busy_since = self._busy_since or time.monotonic()
        try:
            yield
        finally:
            self._busy_since = time.monotonic() if self._launcher.pending else None

    def _fail(self, batch: Batch, failure: TokenEvent) -> None:
        """Takes a failed step back. Its tasks are tried again, unless a single one has failed."""
        self._stats.failed_steps += 1
        batch = batch.without_ended()
        if not batch.tasks:
            return
        for task in batch.tasks:
            self._committer.take_back(task)
        if failure is OUT_OF_MEMORY:
            release_memory()
        if self._recovery.fail(batch, out_of_memory=failure is OUT_OF_MEMORY):
            self._stats.retried_rows += len(batch.tasks)
            return
        self._committer.finish(batch.tasks[0], failure)
        if self._recovery.is_in_doubt:
            with self._busy():
                self._runner.probe()  # an engine that can't even do this can't go on
            self._recovery.clear_doubt()

    def _end_all(self) -> None:
        """Ends every accepted task, also when the loop has failed."""
        for task in (*self._running.clear(), *self._waiting, *self._inbox.close()):
            self._outbox.post(task, STOPPED)
            self._admission.leave(task)
        for need in self._needs:
            need.close()
        self._waiting.close()
        self._outbox.deliver()

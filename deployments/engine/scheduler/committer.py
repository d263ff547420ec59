"""Takes in what a step has computed: tasks go on by it, or end.

A step's tokens belong to their tasks from here on, and its full pages can be found by others.
"""

import logging
from collections.abc import Sequence, Set

from deployments.contract.errors import ErrorKind
from deployments.contract.events import TokenEvent, TokenLogprob
from deployments.engine.needs.need import Need, RowNeed
from deployments.engine.sampling.sampler import Sample
from deployments.engine.scheduler.events import Outbox, token_event, vector_events
from deployments.engine.scheduler.running_tasks import RunningTasks
from deployments.engine.stats import EngineStats
from deployments.engine.step_result import StepResult
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.endings import FAILED, NOT_FINITE
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

log = logging.getLogger(__name__)


class Committer:
    """Ends tasks of `running`, and gives them their tokens."""

    def __init__(
        self,
        cache: KVCache,
        running: RunningTasks,
        outbox: Outbox,
        stats: EngineStats,
        needs: Sequence[Need],
    ) -> None:
        self._cache = cache
        # A call for each row of each step is not free.
        self._has_windows = any(group.window is not None for group in cache.groups)
        self._has_states = cache.shape.has_states
        self._running = running
        self._needs = needs
        self._row_needs = [need for need in needs if isinstance(need, RowNeed)]
        self._outbox = outbox
        self._stats = stats
        self._deferred: dict[Task, Sample] = {}  # that the tasks' constraints have to read first

    def commit(self, batch: Batch, result: StepResult) -> None:
        """Takes in the result of a batch, row by row."""
        if result.pooled:
            self._take_vectors(batch, result)
        for row, samples in enumerate(result.samples):
            task, logprobs = batch.tasks[row], result.prompt_logprobs.get(row, ())
            if task.has_ended or row in result.stale_rows:  # since the step was launched
                continue
            if samples and task.refuses(samples[0].token_id):
                self.take_back(task)
            elif result.is_finite(row):
                n = batch.new_len[row] - task.n_drafted
                if row in result.late_rows:  # no state is behind the tokens before the last one
                    n = 0 if self._has_states else n - 1
                self._advance(task, n, logprobs)
                self.report_progress(task)
                task.drafts.n_untold += task.n_drafted
                if samples or task.n_computed == task.n_tokens:
                    self._append(task, samples[0] if samples else None)
                if task.n_drafted:
                    self._append_accepted(task, samples[1:])
            else:
                self._finish_not_finite(task)

    @property
    def deferred(self) -> Set[Task]:
        """Tasks for which a token was sampled that is not appended yet: no step has a row of
        them."""
        return self._deferred.keys()

    def append_deferred(self) -> None:
        """Appends what was sampled for running tasks where their constraints have read it. May end
        some of them."""
        if self._deferred:
            for task in self._running:
                if task in self._deferred and task.constraint.is_read:
                    self._append_deferred(task)

    def finish(self, task: Task, event: TokenEvent) -> None:
        """Ends a running task and frees its pages."""
        self._deferred.pop(task, None)
        self._outbox.post(task, event)  # first: it counts even where the accounts are broken
        self._running.end(task)
        for need in self._needs:
            need.leave(task, is_preempted=False)

    def forget(self, task: Task) -> None:
        """Forgets a task that has ended while it waited, after it was preempted."""
        self._deferred.pop(task, None)

    def _finish_not_finite(self, task: Task) -> None:
        # The pages that it was computed from may be broken too: nobody may find them.
        self._cache.forget(task.id, task.hash_pages(self._cache.shape.page_size))
        self.finish(task, NOT_FINITE)

    def _take_vectors(self, batch: Batch, result: StepResult) -> None:
        """Takes the vectors of rows that are still there; those that are not finite end."""
        for row, chunk in result.pooled.items():
            task = batch.tasks[row]
            if task.has_ended or row in result.stale_rows:
                continue
            if not chunk.is_finite:
                self._finish_not_finite(task)
            elif task.pooled is not None:
                task.pooled.add(chunk)

    def take_back(self, task: Task) -> None:
        """Undoes the step in progress for the task. It is computed again."""
        self._cache.settle(task.id, task.n_computed)
        task.rewind()

    def report_progress(self, task: Task) -> None:
        """Tells how much of a prompt is computed, where the request asks for it."""
        if task.reports_progress:
            self._outbox.post(task, task.progress(self._cache.cached_tokens(task.id)))

    def _advance(self, task: Task, n: int, prompt_logprobs: Sequence[TokenLogprob]) -> None:
        """The task's next `n` tokens are computed."""
        page_size = self._cache.shape.page_size
        if full_pages := task.filled_by(n, page_size):
            self._cache.record(task.id, task.n_computed // page_size, full_pages)
        task.n_computed += n
        if self._has_windows:
            self._cache.free_out_of_window(task.id, task.n_computed)
        for need in self._row_needs:
            need.commit(task)
        task.last_step = self._stats.steps
        task.prompt_logprobs.extend(prompt_logprobs)

    def _append_accepted(self, task: Task, samples: Sequence[Sample]) -> None:
        """Appends what was sampled behind those of the task's drafted tokens that were right."""
        self._stats.drafts += 1
        self._stats.drafted_tokens += task.n_drafted
        task.drafts.learn(task.n_drafted, len(samples), task.n_tokens)
        task.n_drafted = 0
        for position, sample in enumerate(samples):
            # What no token is left for, or what a constraint reads for long, is for the next step.
            if task.has_ended or task in self._deferred or sample.token_id is None:
                break
            if task.refuses(sample.token_id):
                break
            self._stats.accept(position)
            task.drafts.n_untold_right += 1
            self._advance(task, 1, ())
            self._append(task, sample)
        if not task.has_ended:
            self._cache.settle(task.id, task.n_computed)

    def _append(self, task: Task, sample: Sample | None) -> None:
        """Appends what was sampled behind the last known token, if anything was, and posts it; or
        ends the task. A constraint that is slow has to read the token first."""
        token_id = None if sample is None else sample.token_id
        if sample is None or token_id is None or token_id in task.end_token_ids:
            self._append_now(task, sample)
        elif task.constraint.defers(token_id):
            self._deferred[task] = sample
        else:
            self._append_now(task, sample)

    def _append_deferred(self, task: Task) -> None:
        try:
            self._append_now(task, self._deferred.pop(task))
        except Exception:  # whatever its constraint raised is this task's alone, as in a step
            log.exception("a constraint failed, of %s", task.request.request_id)
            self.finish(task, FAILED)

    def _append_now(self, task: Task, sample: Sample | None) -> None:
        prompt_logprobs = self._count_prompt(task) if task.has_no_sample else None
        if sample is not None and sample.token_id is not None:
            task.append(sample.token_id)
            self._stats.tokens_generated += 1
        elif sample is not None:
            task.stall()
        if task.failure:
            self.finish(task, TokenEvent.failed(task.failure, ErrorKind.INVALID_REQUEST))
            return
        event = token_event(task, sample, prompt_logprobs)
        if event.finish_reason is None:
            self._outbox.post(task, event)
        elif task.is_pooling:
            *parts, last = vector_events(task, event)
            for part in parts:
                self._outbox.post(task, part)
            self.finish(task, last)
        else:
            self.finish(task, event)

    def _count_prompt(self, task: Task) -> tuple[TokenLogprob | None, ...] | None:
        """Counts the prompt in the statistics; returns its log-probabilities where they are asked
        for, with None for the first token."""
        found = self._cache.cached_tokens(task.id)
        task.cached_tokens = task.count_cached(found)
        task.cached_by_source = task.count_by_source(found)
        self._stats.prompt_tokens += task.n_prompt
        self._stats.cached_tokens += task.cached_tokens
        if task.request.prompt_logprobs is None or task.request.produced_ids:
            return None
        return (None, *task.prompt_logprobs)

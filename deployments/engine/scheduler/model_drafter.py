"""Drafts by a second model, which says with little work what the first one is likely to say.

Its keys and values are in further layers of the same pages. It reads a sequence when it is to draft
for it, so a prompt's first token does not wait for it. What it has read of full pages is kept with
them, for whoever finds them.
"""

import logging
import time
from collections.abc import Sequence

import numpy as np
import torch

from deployments.engine.draft_runner import DraftRunner
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.sampling.rows import can_draft
from deployments.engine.scheduler.draft_policy import DraftPolicy
from deployments.engine.scheduler.drafter import Drafter, NgramDrafter
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

log = logging.getLogger(__name__)

PAUSE = 256  # drafts left out after one that failed
READ_PART = 8  # of what may be read in a step, where others wait for it


class ModelDrafter(Drafter):
    """Drafts by passes of a small model. What constraints leave no choice about is drafted where
    the model drafts nothing, too."""

    def __init__(
        self,
        runner: DraftRunner,
        cache: KVCache,
        policy: DraftPolicy,
        *,
        is_async: bool,
        max_per_task: int,
        min_per_task: int,
        min_prob: float,
        max_step_tokens: int,
        max_read_tokens: int,
        groups: Sequence[int],
    ) -> None:
        """`min_per_task`: a shorter draft is not used. `min_prob`: a draft ends before a token that
        the draft model gives less. `max_step_tokens`: of a step with drafts. `max_read_tokens`:
        that the draft model reads before it says something, in one step. `groups` are those of the
        draft model's layers. `is_async`: a step without drafts is launched ahead, which is worth
        more than what constraints force."""
        self._ngrams = NgramDrafter(max_per_task, max_step_tokens)
        self._is_async = is_async
        self._runner = runner
        self._cache = cache
        self._policy = policy
        self._max_per_task = max_per_task
        self._min_per_task = min_per_task
        self._min_prob = min_prob
        self._max_step_tokens = max_step_tokens
        self._max_read_tokens = max_read_tokens
        self._read_pages = ReadPages(cache, groups)
        # Tokens that are read of a sequence in a pass that is timed as one over single tokens.
        self._n_little = 1 + max_per_task
        self._pause = 0
        self._seconds = 0.0  # spent on the step in progress

    def start(self) -> None:
        self._runner.start()

    def can_draft(self, n_rows: int) -> bool:
        if n_rows >= self._max_step_tokens:
            return False
        return not self._is_async or self._may_draft(n_rows)

    def draft(self, decodes: Sequence[Task], n_other: int, budget: int) -> None:
        n_rows = len(decodes)
        if self._may_draft(n_rows):
            start = time.perf_counter()
            room = min(self._max_step_tokens, budget) - n_other - n_rows
            self._try_to_draft(decodes, room)
            self._seconds = time.perf_counter() - start
        left = [task for task in decodes if task.constraint.is_masking and not task.n_drafted]
        n_beside = n_rows - len(left) + sum(task.n_drafted for task in decodes)
        self._ngrams.draft(left, n_other + n_beside, budget)

    def observe(self, n_tokens: int, n_drafted: int, n_prompt: int, seconds: float) -> None:
        if not n_prompt:
            self._policy.observe_step(n_tokens - n_drafted, n_tokens, seconds - self._seconds)
        self._seconds = 0.0

    def _may_draft(self, n_rows: int) -> bool:
        if self._pause:
            self._pause -= 1
            return False
        n_max = min(self._max_step_tokens // n_rows - 1, self._max_per_task) if n_rows else 0
        return n_max > 0 and self._policy.may_draft(n_rows, n_max)

    def _try_to_draft(self, tasks: Sequence[Task], room: int) -> None:
        try:
            self._draft(tasks, room)
        except Exception as error:  # the step itself needs no draft
            log.exception("drafting failed; the next %d steps go without it", PAUSE)
            self._pause = PAUSE
            for task in tasks:
                task.draft(())
                task.drafts.n_read = 0
            if is_out_of_memory(error):
                release_memory()

    def _draft(self, tasks: Sequence[Task], room: int) -> None:
        n_rows = len(tasks)
        n_max = min(self._max_per_task, room // n_rows)
        wanted = self._lengths(tasks, n_max, n_rows)
        if not wanted:
            return
        passes = Passes(self._runner, self._cache, wanted)
        start = time.perf_counter()
        n_read = passes.read(
            self._read_pages, self._max_read_tokens // (READ_PART if n_rows > 1 else 1)
        )
        if is_read := n_read > self._n_little * len(wanted):
            passes.wait()
            self._policy.observe_read(n_read, time.perf_counter() - start)
        while passes.going_on:
            passes.say(self._min_prob)
        if not is_read:
            seconds = time.perf_counter() - start
            self._policy.observe_passes(len(wanted), passes.n, seconds)
        for task, guess in passes.guesses.items():
            self._take(task, guess, n_max)

    def _lengths(self, tasks: Sequence[Task], n_max: int, n_rows: int) -> dict[Task, int]:
        """How many tokens to draft for those tasks for which any are."""
        tasks = [task for task in tasks if can_draft(task)]
        if n_max <= 0 or not tasks:
            return {}
        rates = []
        for task in tasks:
            task.drafts.of_model.expect(self._policy.rate)
            rates.append(task.drafts.of_model.rate)
        self._policy.observe_rates(rates)
        wanted: dict[Task, int] = {}
        lengths = self._policy.lengths(rates, n_rows, n_max)
        for task, length in zip(tasks, lengths, strict=True):
            n_limit = min(task.n_limit - 1, self._runner.max_tokens)
            n = min(length, n_limit - task.n_tokens)
            if n < max(1, self._min_per_task):
                task.drafts.of_model.forget(self._policy.rate)
            elif self._is_worth_reading(task, n_rows, n_max):
                wanted[task] = n
        return wanted

    def _is_worth_reading(self, task: Task, n_rows: int, n_max: int) -> bool:
        n_unread = task.n_tokens - self._read_pages.first_unread(task)
        if n_unread <= self._n_little:
            return True
        rate = max(task.drafts.of_model.rate, self._policy.rate)
        n_said = task.n_tokens - task.n_prompt
        return self._policy.is_worth_reading(n_unread, n_said, rate, n_rows, n_max)

    def _take(self, task: Task, guess: "GuessedTokens", n_max: int) -> None:
        n_max = min(n_max, task.n_limit - task.n_tokens - 1)
        drafted = task.drafts.take_guess(guess.token_ids, task.n_tokens, n_max, task.constraint)
        task.drafts.n_read = task.n_tokens + min(guess.n_stored, task.drafts.n_guessed)
        if len(drafted) >= self._min_per_task:
            task.draft(drafted)


class GuessedTokens:
    """The tokens that are guessed for one task, in one step."""

    def __init__(self, n_wanted: int) -> None:
        self.n_wanted = n_wanted
        self.token_ids: list[int] = []
        self.n_stored = 0  # of these, whose keys and values are in the cache


class Passes:
    """The passes of the draft model before one step, over all rows at once."""

    def __init__(self, runner: DraftRunner, cache: KVCache, wanted: dict[Task, int]) -> None:
        self._runner = runner
        self._cache = cache
        self._wanted = wanted
        self.guesses: dict[Task, GuessedTokens] = {}
        self.going_on: list[Task] = []  # a row of logits each
        self.n = 0

    def read(self, pages: "ReadPages", max_tokens: int) -> int:
        """Has the draft model read what it has not yet of all tasks, `max_tokens` at most. Those of
        which it knows all go on. Returns how many tokens it has read."""
        begins = {task: pages.first_unread(task) for task in self._wanted}
        left, ends = max_tokens, dict[Task, int]()
        for task, begin in sorted(begins.items(), key=lambda item: item[0].n_tokens - item[1]):
            if left > 0:
                ends[task] = min(task.n_tokens, begin + left)
                left -= ends[task] - begin
        columns = [[begins[task] for task in ends], [*ends.values()]]
        first, last = np.array(columns, dtype=np.int64)
        self._logits = self._runner.compute([*ends], first, last)
        self.n += 1
        for task, end in ends.items():
            pages.mark(task, begins[task], end)
            task.drafts.n_read = end
        self.going_on = [task for task, end in ends.items() if end == task.n_tokens]
        self._logits = self._logits[: len(self.going_on)]
        self.guesses = {task: GuessedTokens(self._wanted[task]) for task in self.going_on}
        return max_tokens - left

    def wait(self) -> None:
        """Waits until the last pass is computed: a GPU may be at it."""
        if self._logits.is_cuda:
            torch.cuda.current_stream(self._logits.device).synchronize()

    def say(self, min_prob: float) -> None:
        """One token more of each task that goes on, unless it is less likely than `min_prob`."""
        n = len(self.guesses[self.going_on[0]].token_ids)
        said = self._runner.say(self.going_on, self._logits, n, needs_probs=min_prob > 0)
        going_on = []
        for task, token_id, prob in zip(self.going_on, said.token_ids, said.probs, strict=True):
            guess = self.guesses[task]
            if prob < min_prob:
                continue
            task.tokens[task.n_tokens + n] = token_id
            guess.token_ids.append(token_id)
            is_last = n + 1 == guess.n_wanted or token_id in task.end_token_ids
            if not is_last and self._cache.extend(task.id, task.n_tokens + n + 1):
                going_on.append(task)
        self.going_on = going_on
        if going_on:
            first = np.array([task.n_tokens + n for task in going_on], dtype=np.int64)
            self._logits = self._runner.compute(going_on, first, first + 1)
            self.n += 1
            for task in going_on:
                self.guesses[task].n_stored += 1


class ReadPages:
    """Which pages hold the draft model's keys and values of all of their tokens, by their hashes: a
    page that holds other tokens by now has another one."""

    def __init__(self, cache: KVCache, groups: Sequence[int]) -> None:
        self._cache = cache
        self._groups = groups
        self._hashes: dict[int, bytes] = {}  # by page of the first group

    def first_unread(self, task: Task) -> int:
        """The first token of a task that the draft model has not read."""
        size = self._cache.shape.page_size
        known = min(task.drafts.n_read, task.n_computed)
        if known == 0:
            n = 0
            for n, page_hash in enumerate(task.hash_pages(size)[: task.n_computed // size], 1):
                if self._hashes.get(self._page(task, n - 1)) != page_hash:
                    n -= 1
                    break
            known = task.drafts.n_read = n * size
        return max(known, *(self._cache.first_stored(task.id, group) for group in self._groups))

    def mark(self, task: Task, begin: int, end: int) -> None:
        """The draft model has read the tokens of a task from `begin` up to `end`, and those before
        in the page of `begin`."""
        size = self._cache.shape.page_size
        first, behind = begin // size, min(end, task.n_computed) // size
        if first < behind:
            for index, page_hash in enumerate(task.hash_pages(size)[first:behind], first):
                self._hashes[self._page(task, index)] = page_hash

    def _page(self, task: Task, index: int) -> int:
        return self._cache.table.page(task.id, index, self._groups[0])

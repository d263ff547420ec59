"""Drafts by guesses of something that says with little work what a model is likely to say.

As many tokens are drafted as pay, by measured times and by how often guesses were right.
"""

import logging
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from deployments.engine.draft_runner import GuessRunner
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.sampling.rows import can_draft
from deployments.engine.scheduler.draft_policy import DraftPolicy
from deployments.engine.scheduler.drafter import Drafter, NgramDrafter
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

log = logging.getLogger(__name__)

PAUSE = 256  # drafts left out after one that failed
READ_PART = 8  # of what may be read in a step, where others wait for it


class WhatIsRead(Protocol):
    """Which tokens of a sequence have keys and values of what guesses."""

    def first_unread(self, task: Task) -> int:
        """The first token of a task that it has not read."""
        ...

    def mark(self, task: Task, begin: int, end: int) -> None:
        """It has read the tokens of a task from `begin` up to `end`, and those before in the page
        of `begin`."""
        ...

    def can_guess(self, task: Task) -> bool:
        """Whether it can say what follows the newest token of a task, once it has read that."""
        ...


class GuessingDrafter(Drafter):
    """Drafts by passes of what guesses, over all rows at once."""

    def __init__(
        self,
        runner: GuessRunner,
        cache: KVCache,
        policy: DraftPolicy,
        read: WhatIsRead,
        *,
        is_async: bool,
        max_per_task: int,
        min_per_task: int,
        min_prob: float,
        max_step_tokens: int,
        max_read_tokens: int,
    ) -> None:
        """`min_per_task`: a shorter draft is not used. `min_prob`: a draft ends before a token that
        is given less. `max_step_tokens`: of a step with drafts. `max_read_tokens`: that are read
        before something is said, in one step. `is_async`: a step without drafts is launched ahead,
        which is worth more than what constraints force or n-grams say."""
        self._ngrams = NgramDrafter(max_per_task, max_step_tokens)
        self._is_async = is_async
        self._runner = runner
        self._cache = cache
        self._policy = policy
        self._read = read
        self._max_per_task = max_per_task
        self._min_per_task = min_per_task
        self._min_prob = min_prob
        self._max_step_tokens = max_step_tokens
        self._max_read_tokens = max_read_tokens
        # Tokens that are read of a sequence in a pass that is timed as one over single tokens.
        self._n_little = 1 + max_per_task
        self._pause = 0
        self._seconds = 0.0  # spent on the step in progress

    def start(self) -> None:
        self._runner.start()

    def can_draft(self, n_rows: int) -> bool:
        if n_rows >= self._max_step_tokens:
            return False
        return not self._is_async or self._may_guess(n_rows)

    def observe(self, n_tokens: int, n_drafted: int, n_prompt: int, seconds: float) -> None:
        if not n_prompt:
            self._policy.observe_step(n_tokens - n_drafted, n_tokens, seconds - self._seconds)
        self._seconds = 0.0

    def _guess_for(self, tasks: Sequence[Task], n_rows: int, room: int) -> None:
        """Drafts for some of the `n_rows` tasks that are drafted for, `room` tokens at most."""
        if not tasks or not self._may_guess(n_rows):
            return
        start = time.perf_counter()
        try:
            self._guess(tasks, n_rows, room)
        except Exception as error:  # the step itself needs no draft
            log.exception("drafting failed; the next %d steps go without it", PAUSE)
            self._pause = PAUSE
            for task in tasks:
                task.draft(())
                task.drafts.n_read = 0
            if is_out_of_memory(error):
                release_memory()
        self._seconds = time.perf_counter() - start

    def _may_guess(self, n_rows: int) -> bool:
        if self._pause:
            self._pause -= 1
            return False
        n_max = min(self._max_step_tokens // n_rows - 1, self._max_per_task) if n_rows else 0
        return n_max > 0 and self._policy.may_draft(n_rows, n_max)

    def _guess(self, tasks: Sequence[Task], n_rows: int, room: int) -> None:
        n_max = min(self._max_per_task, room // len(tasks))
        wanted = self._lengths(tasks, n_max, n_rows)
        if not wanted:
            return
        passes = Passes(self._runner, self._cache, wanted)
        start = time.perf_counter()
        if self._min_prob == 0 and passes.guess(self._read):
            self._policy.observe_passes(len(wanted), passes.n, time.perf_counter() - start)
            self._take_all(passes, n_max)
            return
        n_read = passes.read(self._read, self._max_read_tokens // (READ_PART if n_rows > 1 else 1))
        if is_read := n_read > self._n_little * len(wanted):
            passes.wait()
            self._policy.observe_read(n_read, time.perf_counter() - start)
        while passes.going_on:
            passes.say(self._min_prob)
        if not is_read:
            seconds = time.perf_counter() - start
            self._policy.observe_passes(len(wanted), passes.n, seconds)
        self._take_all(passes, n_max)

    def _lengths(self, tasks: Sequence[Task], n_max: int, n_rows: int) -> dict[Task, int]:
        """How many tokens to draft for those tasks for which any are."""
        tasks = [task for task in tasks if can_draft(task) and self._read.can_guess(task)]
        if n_max <= 0 or not tasks:
            return {}
        rates = []
        for task in tasks:
            if (outcome := task.drafts.take_outcome()) is not None:
                self._policy.observe_draft(*outcome)
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
        n_unread = task.n_tokens - self._read.first_unread(task)
        if n_unread <= self._n_little:
            return True
        rate = max(task.drafts.of_model.rate, self._policy.rate)
        n_said = task.n_tokens - task.n_prompt
        return self._policy.is_worth_reading(n_unread, n_said, rate, n_rows, n_max)

    def _take_all(self, passes: "Passes", n_max: int) -> None:
        for task, guess in passes.guesses.items():
            self._take(task, guess, n_max)

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
    """The passes before one step, over all rows at once."""

    def __init__(self, runner: GuessRunner, cache: KVCache, wanted: dict[Task, int]) -> None:
        self._runner = runner
        self._cache = cache
        self._wanted = wanted
        self.guesses: dict[Task, GuessedTokens] = {}
        self.going_on: list[Task] = []  # a row of logits each
        self.n = 0

    def guess(self, what: WhatIsRead) -> bool:
        """Has one call make all passes, where all tasks lack their newest token alone and there is
        such a call. Returns whether it has."""
        n, tasks = max(self._wanted.values()), [*self._wanted]
        for task in tasks:
            if what.first_unread(task) != task.n_tokens - 1:
                return False
            if task.n_tokens + n > min(task.n_limit - 1, self._runner.max_tokens):
                return False
            ends = range(task.n_tokens + 1, task.n_tokens + n)  # a page more at once
            if not all(self._cache.extend(task.id, end) for end in ends):
                return False
        if (said := self._runner.guess(tasks, n)) is None:
            return False
        for task, token_ids in zip(tasks, said, strict=True):
            guess = self.guesses[task] = GuessedTokens(self._wanted[task])
            for token_id in token_ids[: guess.n_wanted]:
                guess.token_ids.append(token_id)
                if token_id in task.end_token_ids:
                    break
            guess.n_stored = len(guess.token_ids) - 1
        self.n = n
        return True

    def read(self, what: WhatIsRead, max_tokens: int) -> int:
        """Reads what is not read yet of all tasks, `max_tokens` at most. Those of which all is read
        go on. Returns how many tokens it has read."""
        begins = {task: what.first_unread(task) for task in self._wanted}
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
            what.mark(task, begins[task], end)
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

"""Plans a step: rows of (task, n tokens) under a budget, and the pages that they are written to.

Decodes come first and are cheap to plan; prompts share the tokens that they leave.
"""

from collections.abc import Callable, Mapping, Sequence

from deployments.engine.needs.need import RowNeed
from deployments.engine.scheduler.drafter import NO_DRAFTER, Drafter
from deployments.engine.scheduler.prefill_pacer import PrefillPacer
from deployments.engine.tasks.batch import NO_ROWS, NOTHING_AHEAD, Ahead, Batch, start_of
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

Share = tuple[Task, int]  # a task, and how many of the tokens that are left it may have


class _OutOfPagesError(Exception):
    """A step that must not preempt anyone needs more pages than there are."""


class Planner:
    """`preempt_last` frees the pages of the running task that is last in order, and returns it."""

    def __init__(
        self,
        cache: KVCache,
        pacer: PrefillPacer,
        preempt_last: Callable[[], Task],
        needs: Sequence[RowNeed] = (),
        drafter: Drafter = NO_DRAFTER,
    ) -> None:
        self._parts = _Parts(cache, pacer, needs)
        self._cache = cache
        self._drafter = drafter
        self._preempt_last = preempt_last

    def plan(self, tasks: Sequence[Task], budget: int) -> Batch:
        """The next step of some tasks, which are in order; of `budget` tokens at most.

        All its tokens have pages. Tasks may be preempted for that; these are not in the batch.
        """
        plan = _Plan(self._parts, budget, self._preempt_last)
        plan.add_rows(tasks)
        if self._drafter.can_draft(len(plan.rows)):
            self._add_drafts(plan.rows, budget)
        return Batch([*plan.rows], [*plan.rows.values()])

    def plan_next(self, tasks: Sequence[Task], budget: int, ahead: Ahead) -> Batch:
        """Like `plan`, for the step after the one in progress, whose progress is `ahead`.

        It has no rows where one would be drafted for, or another one preempted.
        """
        if self._drafter.can_draft(len(tasks)):
            return NO_ROWS
        plan = _Plan(self._parts, budget, _preempt_none, ahead)
        try:
            plan.add_rows(tasks)
        except _OutOfPagesError:
            self.give_back(Batch([*plan.rows], [*plan.rows.values()], ahead))
            return NO_ROWS
        return Batch([*plan.rows], [*plan.rows.values()], ahead)

    def give_back(self, batch: Batch) -> None:
        """Takes back the pages for what `plan_next` has planned."""
        for task, start in zip(batch.tasks, batch.starts, strict=True):
            self._cache.retract(task.id, start)

    def _add_drafts(self, rows: dict[Task, int], budget: int) -> None:
        """Drafts may have what is left of the step and of the pages."""
        decodes = [task for task in rows if task.n_uncomputed == 1]
        self._drafter.draft(decodes, sum(rows.values()) - len(decodes), budget)
        for task in [task for task in decodes if task.n_drafted]:
            if self._cache.extend(task.id, task.n_tokens + task.n_drafted):
                rows[task] += task.n_drafted
            else:
                task.draft(())


def _preempt_none() -> Task:
    raise _OutOfPagesError


class _Parts:
    """The rules and figures that all plans go by."""

    def __init__(self, cache: KVCache, pacer: PrefillPacer, needs: Sequence[RowNeed]) -> None:
        self.cache, self.pacer, self.needs = cache, pacer, needs
        self.page_size = cache.shape.page_size
        self.max_tokens = cache.shape.max_new_tokens or cache.shape.max_tokens  # of a step


class _Plan:
    """One step as it is planned: `rows` are its tasks, and how many tokens each computes."""

    def __init__(
        self,
        parts: _Parts,
        budget: int,
        preempt_last: Callable[[], Task],
        ahead: Ahead = NOTHING_AHEAD,
    ) -> None:
        self.rows: dict[Task, int] = {}
        self._cache, self._page_size = parts.cache, parts.page_size
        self._parts = parts
        self._budget = budget
        self._preempt_last = preempt_last
        self._ahead = ahead

    def add_rows(self, tasks: Sequence[Task]) -> None:
        """Plans decodes, then prompts. Raises what `preempt_last` raises."""
        self._add_decodes(tasks)
        if len(self.rows) < len(tasks):
            self._add_prompts(tasks)
        elif len(self.rows) == len(self._cache.table):
            self.rows = self._in_table_order([*self.rows])

    def _start(self, task: Task) -> int:
        return start_of(task, self._ahead)

    def _n_left(self, task: Task) -> int:
        """Tokens of a task that are known, or sampled by then, and not computed."""
        progress = self._ahead.get(task)
        if progress is None:
            return task.n_uncomputed
        return task.n_uncomputed + progress.n_sampled - progress.n_computed

    def _in_table_order(self, decodes: Sequence[Task]) -> dict[Task, int]:
        """The page tables of all tasks need not be copied when they are in this order."""
        order = self._cache.table.in_order([task.id for task in decodes])
        return dict.fromkeys([decodes[i] for i in order], 1)

    def _add_decodes(self, tasks: Sequence[Task]) -> None:
        if self._ahead:
            decodes = [task for task in tasks if self._n_left(task) == 1]
        else:  # a call for each row would cost a tenth of a plan
            decodes = [task for task in tasks if task.n_tokens - task.n_computed == 1]
        if len(decodes) > self._budget:  # the others have the next steps
            decodes = sorted(decodes, key=lambda task: task.last_step)[: self._budget]
        self.rows.update(dict.fromkeys(decodes, 1))
        for task, start in zip(decodes, self._starts(decodes), strict=True):
            # One without room may have been preempted by one before it.
            if start % self._page_size == 0 and task in self.rows:
                self._make_room(task, 1)

    def _starts(self, tasks: Sequence[Task]) -> list[int]:
        if self._ahead:
            return [self._start(task) for task in tasks]
        return [task.n_computed for task in tasks]

    def _add_prompts(self, tasks: Sequence[Task]) -> None:
        rows, pacer = self.rows, self._parts.pacer
        n_decodes = len(rows)
        left = pacer.max_prompt_tokens(n_decodes, self._budget - n_decodes)
        # By hashes of pages that others should wait for: whose they are.
        in_flight: dict[bytes, Task] = {}
        for task in tasks:
            if task in rows or task in self._ahead:
                self._note_in_flight(in_flight, task, rows.get(task, 0))
        prompts = {task: n for task in tasks if (n := self._n_left(task)) > 1}
        left_for_pooling = left
        if any(task.is_pooling for task in prompts):
            has_prompts = not all(task.is_pooling for task in prompts)
            left_for_pooling = pacer.max_pooling_tokens(n_decodes, left, has_prompts=has_prompts)
        is_first = True
        for task, share in divide(prompts, left):
            if left <= 0:
                break
            room = min(left, left_for_pooling) if task.is_pooling else left
            if room <= 0 or (task not in rows and self._has_to_wait(task, in_flight)):
                continue
            before = rows.get(task, 0)
            # Pooling tasks may have less than a page in all of many steps.
            has_pages = not task.is_pooling or room >= self._page_size
            n = self._cut(task, before + min(share, room), to_pages=has_pages and not is_first)
            if self._parts.needs:
                most = self._parts.max_tokens - n_decodes if is_first else before + room
                for need in self._parts.needs:
                    n = need.uncut(task, self._start(task), n, most)
            if n > before and self._make_room(task, n):
                rows[task] = n
                left -= n - before
                left_for_pooling -= (n - before) * task.is_pooling
                self._note_in_flight(in_flight, task, n)
                is_first = False

    def _cut(self, task: Task, n: int, *, to_pages: bool) -> int:
        """How many of the task's next `n` tokens to compute so that no page is left half full: full
        pages can be shared.

        A chunk that ends within its first page is good for progress only. It is taken where the
        step has no other chunk, so unless `to_pages`.
        """
        before, n_left = self._start(task), self._n_left(task)
        for need in self._parts.needs:
            n = need.most(task, before, n)
        if n >= n_left:
            return n_left
        whole = (before + n) // self._page_size * self._page_size - before
        return whole if whole > 0 or to_pages else n

    def _note_in_flight(self, in_flight: dict[bytes, Task], task: Task, n: int) -> None:
        """Notes that the pages which a task fills are in flight. What the first one of several
        tasks computes is not computed by the others."""
        for page_hash in self._in_flight_prefix(task, n):
            in_flight.setdefault(page_hash, task)

    def _in_flight_prefix(self, task: Task, n: int) -> Sequence[bytes]:
        """Hashes of the pages that another task can go on behind, once the task has computed its
        next `n` tokens."""
        start = self._start(task)
        for need in self._parts.needs:
            if (ends := need.resumable(task, start)) is not None:
                pages = task.hash_pages(self._page_size)
                return [pages[end // self._page_size - 1] for end in ends]
        return task.filled_by(start - task.n_computed + n, self._page_size)

    def _has_to_wait(self, task: Task, in_flight: Mapping[bytes, Task]) -> bool:
        """Whether the task can't go on, or what it needs next is computed for another task.

        Adopts pages that were computed for others since the task was admitted.
        """
        page_size, start = self._page_size, self._start(task)
        if task.id not in self._cache.table:  # preempted by one before it
            return True
        if task.needs_every_position:
            return False
        if self._n_left(task) <= page_size or start % page_size:
            return False
        following = task.hashes[start // page_size : (task.n_tokens - 1) // page_size]
        adopted = 0 if task in self._ahead else self._cache.adopt(task.id, following)
        task.skip(adopted * page_size)
        left = following[adopted:]
        # A state is behind some of them alone, and it is not known which come first.
        needed = left if self._cache.shape.has_states else left[:1]
        return any(in_flight.get(page_hash, task) is not task for page_hash in needed)

    def _make_room(self, task: Task, n: int) -> bool:
        """Gives the task pages for its next `n` tokens, taken from the last tasks if need be. False
        if the task itself was the last one, and is preempted."""
        while not self._cache.extend(task.id, self._start(task) + n):
            last = self._preempt_last()
            self.rows.pop(last, None)
            if last is task:
                return False
        return True


def divide(prompts: Mapping[Task, int], budget: int) -> list[Share]:
    """Shares of a step's `budget` tokens, to be given out in this order until none are left.
    `prompts` are tasks in order, with the tokens that each has to compute.

    Short prompts pass beside a long one, which goes on: the first prompt in order has half of the
    budget. Prompts of the same priority with less to compute have the other half, the shortest
    first. The rest goes to all in their order.
    """
    if not prompts:
        return []
    first, *others = prompts
    priority = first.request.priority
    shorter = [
        task
        for task in others
        if prompts[task] < prompts[first] and task.request.priority == priority
    ]
    shorter.sort(key=prompts.__getitem__)
    n_shorter = min(budget // 2, sum(prompts[task] for task in shorter))
    rest = [(task, budget) for task in (*shorter, first, *others)]
    return [(first, budget - n_shorter), *rest]

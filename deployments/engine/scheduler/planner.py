"""Plans a step: rows of (task, n tokens) under a budget, and the pages that they are written to.

Those that draw with one token come first and are cheap to plan; prompts share what they leave.
"""

from collections.abc import Callable, Sequence

from deployments.engine.sampling.rows import is_blind
from deployments.engine.scheduler.drafter import Drafter
from deployments.engine.scheduler.prefill_pacer import Pace
from deployments.engine.tasks.batch import Rows
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

Share = tuple[Task, int]  # a task, and how many tokens it may have of what is left


class Planner:
    """`preempt_last` takes the pages of the running task that is last in order, and returns it."""

    def __init__(
        self,
        cache: KVCache,
        pace: Pace,
        preempt_last: Callable[[], Task],
        drafter: Drafter | None = None,
    ) -> None:
        self._cache = cache
        self._drafter = drafter
        self._page_size = cache.shape.page_size
        self._pace = pace
        self._preempt_last = preempt_last

    def plan(self, tasks: Sequence[Task], budget: int) -> Rows:
        """Rows of the next step, of up to `budget` tokens; `tasks` are in order."""
        rows = self._plan_decodes(tasks, budget)
        if len(rows) < len(tasks):
            self._plan_prompts([task for task in tasks if task.n_uncomputed > 1], rows, budget)
        elif len(rows) == len(self._cache.table):
            rows = self._in_table_order([*rows])
        if self._drafter is not None and self._drafter.suits(len(rows)):
            self._plan_drafts(self._drafter, rows, budget)
        return Rows([*rows], [*rows.values()])

    def plan_behind(self, tasks: Sequence[Task], n_running: int) -> list[int]:
        """Places of those tasks of a step in flight, all of which draw, that the next step is for;
        none if it has to wait for what they draw, or for other tasks."""
        if self._drafter is not None and self._drafter.suits(len(tasks)):
            return []
        here = [place for place, task in enumerate(tasks) if not task.has_ended]
        if len(here) < n_running or not all(is_blind(tasks[place]) for place in here):
            return []
        places = [place for place in here if tasks[place].n_tokens + 1 < tasks[place].n_limit]
        full = [tasks[place] for place in places if tasks[place].n_tokens % self._page_size == 0]
        has_room = all(self._cache.extend(task.id, task.n_tokens + 1) for task in full)
        return places if has_room else []

    def _in_table_order(self, decodes: Sequence[Task]) -> dict[Task, int]:
        """Where they are all the tasks, their page tables need not be copied then."""
        places = self._cache.table.in_order([task.id for task in decodes])
        return dict.fromkeys([decodes[place] for place in places], 1)

    def _plan_decodes(self, tasks: Sequence[Task], budget: int) -> dict[Task, int]:
        decodes = [task for task in tasks if task.n_tokens - task.n_computed == 1]
        if len(decodes) > budget:  # they take turns
            decodes = sorted(decodes, key=lambda task: task.last_step)[:budget]
        rows = dict.fromkeys(decodes, 1)
        for task in [task for task in decodes if task.n_computed % self._page_size == 0]:
            if task in rows:  # and not preempted by one before it
                self._make_room(task, 1, rows)
        return rows

    def _plan_drafts(self, drafter: Drafter, rows: dict[Task, int], budget: int) -> None:
        """What is left of the step, and of the pages, is for drafts."""
        decodes = [task for task in rows if task.n_uncomputed == 1]
        drafter.draft(decodes, sum(rows.values()) - len(decodes), budget)
        for task in [task for task in decodes if task.n_drafted]:
            if self._cache.extend(task.id, task.n_tokens + task.n_drafted):
                rows[task] += task.n_drafted
            else:
                task.n_drafted = 0

    def _plan_prompts(self, prompts: Sequence[Task], rows: dict[Task, int], budget: int) -> None:
        n_decodes = len(rows)
        left = self._pace.tokens_beside(n_decodes, budget - n_decodes)
        coming: set[bytes] = set()  # pages that this step will make findable
        for task in rows:
            coming.update(task.filled_by(1, self._page_size))
        is_first = True
        for task, share in divide(prompts, left):
            if left <= 0:
                break
            if task not in rows and self._awaits(task, coming):
                continue
            before = rows.get(task, 0)
            n = self._cut(task, before + min(share, left), to_pages=not is_first)
            if n > before and self._make_room(task, n, rows):
                rows[task] = n
                left -= n - before
                coming.update(task.filled_by(n, self._page_size))
                is_first = False

    def _cut(self, task: Task, n: int, *, to_pages: bool) -> int:
        """As many of its next `n` tokens as leave no page half full: others can share them then.

        A chunk within a page is no use but for progress, when there is no other in the step.
        """
        if n >= task.n_uncomputed:
            return task.n_uncomputed
        whole = (task.n_computed + n) // self._page_size * self._page_size - task.n_computed
        return whole if whole > 0 or to_pages else n

    def _awaits(self, task: Task, coming: set[bytes]) -> bool:
        """Whether the task can't go on, or its next page is being computed for another one.

        Adopts what others have computed since it was admitted.
        """
        page_size = self._page_size
        if task.id not in self._cache.table:  # preempted by one before it
            return True
        if task.n_unscored:  # every position has to be computed
            return False
        if task.n_uncomputed <= page_size or task.n_computed % page_size:
            return False
        first = task.n_computed // page_size
        following = task.hashes[first : (task.n_tokens - 1) // page_size]
        adopted = self._cache.adopt(task.id, following)
        task.n_computed += adopted * page_size
        return adopted < len(following) and following[adopted] in coming

    def _make_room(self, task: Task, n: int, rows: dict[Task, int]) -> bool:
        """Pages for its next `n` tokens, taken from the last one if need be; False if it is that
        one."""
        while not self._cache.extend(task.id, task.n_computed + n):
            last = self._preempt_last()
            rows.pop(last, None)
            if last is task:
                return False
        return True


def divide(prompts: Sequence[Task], budget: int) -> list[Share]:
    """Who is served with how much, one after the other, until nothing is left of the budget.

    Of prompts in order the first has half of it, and so each has in its time; those with less to
    compute, of the same priority, have the other half, the shortest first. What is left over goes
    to all as they came.
    """
    if not prompts:
        return []
    first, *others = prompts
    shorter = [
        task
        for task in others
        if task.n_uncomputed < first.n_uncomputed
        and task.request.priority == first.request.priority
    ]
    shorter.sort(key=lambda task: task.n_uncomputed)
    beside = min(budget // 2, sum(task.n_uncomputed for task in shorter))
    after = [(task, budget) for task in (*shorter, first, *others)]
    return [(first, budget - beside), *after]

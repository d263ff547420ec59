"""Plans a step: rows of (task, n tokens) under a budget, and the pages that they are written to.

Decodes come first and are cheap to plan; prompts share the tokens that they leave.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from deployments.engine.scheduler.checkpoint_boundaries import CheckpointBoundaries
from deployments.engine.scheduler.drafter import Drafter
from deployments.engine.scheduler.prefill_pacer import PrefillPacer
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

Share = tuple[Task, int]  # a task, and how many of the tokens that are left it may have
NOTHING = Batch((), ())


class _OutOfPagesError(Exception):
    """A step that must not preempt anyone needs more pages than there are."""


class Planner:
    """`preempt_last` frees the pages of the running task that is last in order, and returns it."""

    def __init__(
        self,
        cache: KVCache,
        pacer: PrefillPacer,
        preempt_last: Callable[[], Task],
        boundaries: CheckpointBoundaries,
        drafter: Drafter | None = None,
    ) -> None:
        self._boundaries = boundaries
        self._cache = cache
        self._drafter = drafter
        self._page_size = cache.shape.page_size
        self._max_tokens = cache.shape.max_new_tokens or cache.shape.max_tokens  # of a step
        self._pacer = pacer
        self._preempt_last = preempt_last
        self._can_preempt = True

    def plan(self, tasks: Sequence[Task], budget: int) -> Batch:
        """The next step of some tasks, which are in order; of `budget` tokens at most.

        All its tokens have pages. Tasks may be preempted for that; these are not in the batch.
        """
        rows: dict[Task, int] = {}
        self._plan_rows(one_to_encode(tasks), rows, budget)
        if self._drafter is not None and self._drafter.can_draft(len(rows)):
            self._plan_drafts(self._drafter, rows, budget)
        return Batch([*rows], [*rows.values()])

    def plan_next(self, tasks: Sequence[Task], budget: int) -> Batch:
        """Like `plan`, for the step after the one in progress, which is counted as done.

        It has no rows where one would be drafted for, or another one preempted.
        """
        if self._drafter is not None and self._drafter.can_draft(len(tasks)):
            return NOTHING
        rows: dict[Task, int] = {}
        self._can_preempt = False
        try:
            self._plan_rows(one_to_encode(tasks), rows, budget)
        except _OutOfPagesError:
            self.give_back(rows)
            return NOTHING
        finally:
            self._can_preempt = True
        return Batch([*rows], [*rows.values()])

    def give_back(self, tasks: Iterable[Task]) -> None:
        """Takes back the pages for what `plan_next` has planned for these tasks."""
        for task in tasks:
            self._cache.retract(task.id, task.n_scheduled)

    def _plan_rows(self, tasks: Sequence[Task], rows: dict[Task, int], budget: int) -> None:
        self._plan_decodes(tasks, rows, budget)
        if len(rows) < len(tasks):
            self._plan_prompts(tasks, rows, budget)
        elif len(rows) == len(self._cache.table):
            order = self._in_table_order([*rows])
            rows.clear()
            rows.update(order)

    def _in_table_order(self, decodes: Sequence[Task]) -> dict[Task, int]:
        """The page tables of all tasks need not be copied when they are in this order."""
        order = self._cache.table.in_order([task.id for task in decodes])
        return dict.fromkeys([decodes[i] for i in order], 1)

    def _plan_decodes(self, tasks: Sequence[Task], rows: dict[Task, int], budget: int) -> None:
        # Properties of all rows would cost a tenth of a plan.
        decodes = [
            task
            for task in tasks
            if task.n_tokens + task.n_placeholders - task.n_computed - task.n_in_step == 1
        ]
        if len(decodes) > budget:  # the others have the next steps
            decodes = sorted(decodes, key=lambda task: task.last_step)[:budget]
        rows.update(dict.fromkeys(decodes, 1))
        for task in decodes:
            if (task.n_computed + task.n_in_step) % self._page_size:
                continue
            if task in rows:  # and not preempted by one before it
                self._make_room(task, 1, rows)

    def _plan_drafts(self, drafter: Drafter, rows: dict[Task, int], budget: int) -> None:
        """Drafts may have what is left of the step and of the pages."""
        decodes = [task for task in rows if task.n_uncomputed == 1]
        drafter.draft(decodes, sum(rows.values()) - len(decodes), budget)
        for task in [task for task in decodes if task.n_drafted]:
            if self._cache.extend(task.id, task.n_tokens + task.n_drafted):
                rows[task] += task.n_drafted
            else:
                task.n_drafted = 0

    def _plan_prompts(self, tasks: Sequence[Task], rows: dict[Task, int], budget: int) -> None:
        n_decodes = len(rows)
        left = self._pacer.max_prompt_tokens(n_decodes, budget - n_decodes)
        # By hashes of pages that others should wait for: whose they are.
        in_flight: dict[bytes, Task] = {}
        for task in tasks:
            if task in rows or task.n_in_step:
                self._note_in_flight(in_flight, task, rows.get(task, 0))
        prompts = [task for task in tasks if task.n_uncomputed > 1]
        left_for_pooling = left
        if any(task.pooled is not None for task in prompts):
            has_prompts = any(task.pooled is None for task in prompts)
            left_for_pooling = self._pacer.max_pooling_tokens(
                n_decodes, left, has_prompts=has_prompts
            )
        is_first = True
        for task, share in divide(prompts, left):
            if left <= 0:
                break
            room = left if task.pooled is None else min(left, left_for_pooling)
            if room <= 0 or (task not in rows and self._has_to_wait(task, in_flight)):
                continue
            before = rows.get(task, 0)
            # Pooling tasks may have less than a page in all of many steps.
            has_pages = task.pooled is None or room >= self._page_size
            n = self._cut(task, before + min(share, room), to_pages=has_pages and not is_first)
            if task.media_vectors:
                most = self._max_tokens - n_decodes if is_first else before + room
                n = _around_spans(task, n, most)
            if n > before and self._make_room(task, n, rows):
                rows[task] = n
                left -= n - before
                left_for_pooling -= (n - before) * (task.pooled is not None)
                self._note_in_flight(in_flight, task, n)
                is_first = False

    def _cut(self, task: Task, n: int, *, to_pages: bool) -> int:
        """How many of the task's next `n` tokens to compute so that no page is left half full: full
        pages can be shared.

        A chunk that ends within its first page is good for progress only. It is taken where the
        step has no other chunk, so unless `to_pages`.
        """
        before = task.n_scheduled
        n = min(n, task.n_readable - before)
        if (boundary := self._boundaries.next_boundary(task, before)) is not None:
            n = min(n, boundary - before)
        if n >= task.n_uncomputed:
            return task.n_uncomputed
        whole = (before + n) // self._page_size * self._page_size - before
        return whole if whole > 0 or to_pages else n

    def _note_in_flight(self, in_flight: dict[bytes, Task], task: Task, n: int) -> None:
        """Notes that the pages which a task fills are in flight. What the first one of several
        tasks computes is not computed by the others."""
        for page_hash in self._in_flight_prefix(task, n):
            in_flight.setdefault(page_hash, task)

    def _in_flight_prefix(self, task: Task, n: int) -> Sequence[bytes]:
        """Hashes of the pages that another task can go on behind, once the task has computed its
        next `n` tokens or, where layers keep a state, has come to its next checkpoints."""
        if self._cache.states is None:
            return task.filled_by(n, self._page_size)
        reached = {
            self._boundaries.next_boundary(task, n) for n in (task.n_computed, task.n_scheduled)
        }
        pages = task.hash_pages(self._page_size)
        return [pages[end // self._page_size - 1] for end in reached if end is not None]

    def _has_to_wait(self, task: Task, in_flight: Mapping[bytes, Task]) -> bool:
        """Whether the task can't go on, or what it needs next is computed for another task.

        Adopts pages that were computed for others since the task was admitted.
        """
        page_size = self._page_size
        if task.id not in self._cache.table:  # preempted by one before it
            return True
        if task.needs_every_position:
            return False
        if task.n_uncomputed <= page_size or task.n_scheduled % page_size:
            return False
        first = task.n_scheduled // page_size
        following = task.hashes[first : (task.n_tokens - 1) // page_size]
        adopted = 0 if task.n_in_step else self._cache.adopt(task.id, following)
        task.n_computed += adopted * page_size
        left = following[adopted:]
        needed = left if self._cache.states is not None else left[:1]
        return any(in_flight.get(page_hash, task) is not task for page_hash in needed)

    def _make_room(self, task: Task, n: int, rows: dict[Task, int]) -> bool:
        """Gives the task pages for its next `n` tokens, taken from the last tasks if need be. False
        if the task itself was the last one, and is preempted."""
        while not self._cache.extend(task.id, task.n_scheduled + n):
            if not self._can_preempt:
                raise _OutOfPagesError
            last = self._preempt_last()
            rows.pop(last, None)
            if last is task:
                return False
        return True


def one_to_encode(tasks: Sequence[Task]) -> Sequence[Task]:
    """Leaves out tasks whose sounds are not encoded yet, but for the first of these: encoding takes
    as long as a large chunk of a prompt does."""
    if not tasks or tasks[0].sound is None:  # all have a sound, or none
        return tasks
    new = [task for task in tasks if task.sound is not None and task.sound.key_values is None]
    later = {*new[1:]}
    return [task for task in tasks if task not in later] if later else tasks


def _around_spans(task: Task, n: int, most: int) -> int:
    """How many of the task's next `n` tokens to compute so that no span is cut that attends both
    ways. One that is next is computed whole where that is no more than `most` tokens."""
    first = task.n_scheduled
    for medium in task.media_vectors:
        for begin, end in medium.spans:
            if begin < first + n < end:
                if begin > first:
                    return begin - first
                return end - first if end - first <= most else 0
    return n


def divide(prompts: Sequence[Task], budget: int) -> list[Share]:
    """Shares of a step's `budget` tokens, to be given out in this order until none are left.

    Short prompts pass beside a long one, which goes on: the first prompt in order has half of the
    budget. Prompts of the same priority with less to compute have the other half, the shortest
    first. The rest goes to all in their order.
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
    n_shorter = min(budget // 2, sum(task.n_uncomputed for task in shorter))
    rest = [(task, budget) for task in (*shorter, first, *others)]
    return [(first, budget - n_shorter), *rest]

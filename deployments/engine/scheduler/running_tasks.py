"""The tasks that run, in their order. Who joins, leaves or is preempted is changed here."""

from bisect import insort
from collections.abc import Iterator, Sequence

from deployments.engine.tasks.task import Task
from kv.cache import KVCache


class RunningTasks:
    """Each has a slot and pages. A loop over them sees those that ran when it began, whoever leaves
    meanwhile."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.copy())

    @property
    def last(self) -> Task:
        """The first to be preempted."""
        return self._tasks[-1]

    def newest_of(self, client: str) -> Task:
        """The last one of a client, which must have one."""
        return next(task for task in reversed(self._tasks) if task.request.client == client)

    def admit(self, task: Task) -> None:
        """Adds a task that has its pages. It goes on behind those that were computed before."""
        task.n_computed = self._cache.cached_tokens(task.id)
        insort(self._tasks, task, key=lambda running: running.order)

    def end(self, task: Task) -> None:
        """The task runs no more, and frees what it holds."""
        task.end()
        self._remove(task)

    def preempt(self, task: Task) -> None:
        """Takes a task out that is computed again later. Its full pages stay findable until
        evicted."""
        task.max_cached = min(task.max_cached, self._cache.cached_tokens(task.id))
        task.n_computed = task.drafts.n_read = 0
        self._remove(task)

    def clear(self) -> Sequence[Task]:
        """Takes all out, whose pages nobody needs any more, and returns them."""
        left, self._tasks = self._tasks, []
        return left

    def _remove(self, task: Task) -> None:
        self._tasks.remove(task)
        self._cache.free(task.id)

"""Divides a step's tokens among prompts: short ones pass beside a long one, which goes on."""

from collections.abc import Sequence

from deployments.engine.tasks.task import Task

Share = tuple[Task, int]  # a task, and how many tokens it may have of what is left


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

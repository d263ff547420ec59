"""What a sampling strategy is: it sees the chosen rows and touches those that ask for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from deployments.engine.chance import DRAW, uniform
from deployments.engine.task import Task
from deployments.wire import SamplingParams

NEVER = float("-inf")
# A change to a logit that decides any draw, yet is far from where float32 overflows.
STRONG = 1e9
_64_BITS = (1 << 64) - 1


class SamplingRows:
    """The tasks whose next tokens are drawn together; strategies see the `chosen` ones of them."""

    def __init__(self, tasks: Sequence[Task], device: torch.device) -> None:
        self.tasks = tasks
        self.params = [task.sampling for task in tasks]
        self.device = device
        self._choose(range(len(tasks)))

    def only(self, chosen: Sequence[int]) -> "SamplingRows":
        some = copy(self)
        some._choose(chosen)
        return some

    def _choose(self, chosen: Sequence[int]) -> None:
        self.chosen = chosen
        self._changed = frozenset[str]().union(*[_changed(self.tasks[row]) for row in chosen])

    def changed(self, *names: str) -> bool:
        """Whether any of them has another value than the neutral one in any of these fields.

        A batch that does not ask for a strategy should not even be searched for rows that do.
        """
        return not self._changed.isdisjoint(names)

    def where(self, wants: Callable[[SamplingParams], bool], *names: str) -> list[int]:
        """The rows that want something, which none does whose fields of these names are neutral."""
        if names and not self.changed(*names):
            return []
        return [row for row in self.chosen if wants(self.params[row])]

    def truncated(self, wants: Callable[[SamplingParams], bool], name: str) -> list[int]:
        """Rows to truncate: greedy ones need none, Mirostat does without."""
        return self.where(lambda p: p.temperature > 0 and p.mirostat is None and wants(p), name)

    def column(self, rows: Sequence[int], value: Callable[[SamplingParams], float]) -> Tensor:
        """One parameter of some rows, to be broadcast over the vocabulary. [rows, 1]"""
        values = [value(self.params[row]) for row in rows]
        return torch.tensor(values, dtype=torch.float32, device=self.device)[:, None]

    def uniform(self, rows: Sequence[int], use: int = DRAW) -> np.typing.NDArray[np.float64]:
        """A random number in [0, 1) for the next position of each of some rows."""
        seeds = np.array([self.params[row].seed & _64_BITS for row in rows], dtype=np.uint64)
        positions = np.array([self.tasks[row].n_tokens for row in rows], dtype=np.int64)
        return uniform(seeds, positions, use)


def _changed(task: Task) -> frozenset[str]:
    """The fields in which a task's sampling is not neutral; they stay the same all its life."""
    if task.changed is None:
        task.changed = frozenset(
            field.name
            for field in fields(SamplingParams)
            if getattr(task.sampling, field.name) != field.default
        )
    return task.changed


class SamplingStrategy(ABC):
    """Changes logits [rows, vocab] in place."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: SamplingRows) -> None: ...

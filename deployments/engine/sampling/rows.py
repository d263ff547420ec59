"""The rows of a batch whose next tokens are drawn, and what each asks for.

What rows ask for stays the same all their lives: it is looked up once for a batch, not every step.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields
from operator import is_

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.rng import DRAW, uniform
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import to_device
from deployments.wire import SamplingParams

_64_BITS = (1 << 64) - 1

Wants = Callable[[SamplingParams], bool]  # a function of a module: what it found is found by it


class Asking:
    """The rows of a batch that ask for one thing, and what they say of it."""

    def __init__(
        self, rows: Sequence[int], params: Sequence[SamplingParams], device: torch.device
    ) -> None:
        self.rows = rows
        self.params = [params[row] for row in rows]
        self._device = device
        self._is_all = len(rows) == len(params)
        self._index = to_device(np.array(rows, dtype=np.int64), device)
        self._columns: dict[str, Tensor] = {}
        self.seeds = np.array([one.seed & _64_BITS for one in self.params], dtype=np.uint64)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Tensor:
        """One parameter of theirs, to be broadcast over the vocabulary. [rows, 1] float32"""
        if name not in self._columns:
            values = [getattr(one, name) for one in self.params]
            column = torch.tensor(values, dtype=torch.float32)  # infinite where numpy would warn
            column = to_device(column.numpy(), self._device)
            self._columns[name] = column[:, None]
        return self._columns[name]

    def take(self, logits: Tensor) -> Tensor:
        """Their logits, which may be changed, to be `put` back."""
        return logits if self._is_all else logits[self._index]

    def put(self, logits: Tensor, part: Tensor) -> None:
        if not self._is_all:
            logits[self._index] = part
        elif part is not logits:
            logits.copy_(part)


class _Wishes:
    """What some rows of a batch ask for, as far as anybody wanted to know."""

    def __init__(
        self, params: Sequence[SamplingParams], changed: frozenset[str], chosen: Sequence[int]
    ) -> None:
        self.params = params
        self.changed = changed
        self.chosen = chosen
        self.asking: dict[Wants, Asking] = {}
        self.parts: dict[tuple[int, ...], _Wishes] = {}


class SamplingRows:
    """The tasks whose next tokens are drawn together; strategies see the `chosen` ones of them."""

    def __init__(
        self,
        tasks: Sequence[Task],
        device: torch.device,
        before: "SamplingRows | None" = None,
        ahead: NDArray[np.int64] | None = None,
    ) -> None:
        """`before` is the last step's: where it asked for the same, nothing is looked up again.

        `ahead` is how many tokens stand between a row's last known one and the one to draw.
        [rows], or all are 0
        """
        self.ahead = ahead
        self.tasks = tasks
        self.device = device
        self.params = [task.request.sampling for task in tasks]
        if before is not None and _are_same(self.params, before.params):
            wishes = before._wishes
        else:
            wishes = self._wishes_of(range(len(tasks)))
        self._wishes: _Wishes = wishes

    @property
    def chosen(self) -> Sequence[int]:
        return self._wishes.chosen

    def without_tasks(self) -> "SamplingRows":
        """What is worth keeping for the next step."""
        rest = copy(self)
        rest.tasks = ()
        return rest

    def only(self, chosen: Sequence[int]) -> "SamplingRows":
        key = tuple(chosen)
        if key not in self._wishes.parts:
            self._wishes.parts[key] = self._wishes_of(chosen)
        some = copy(self)
        some._wishes = self._wishes.parts[key]
        return some

    def changed(self, *names: str) -> bool:
        """Whether any of them has another value than the neutral one in any of these fields.

        A batch that does not ask for a strategy should not even be searched for rows that do.
        """
        return not self._wishes.changed.isdisjoint(names)

    def changed_but(self, *names: str) -> bool:
        """The same of all other fields."""
        return not self._wishes.changed.issubset(names)

    def where(self, wants: Wants, *names: str) -> Sequence[int]:
        """The rows that want something, which none does whose fields of these names are neutral."""
        return self.asking(wants, *names).rows

    def asking(self, wants: Wants, *names: str) -> Asking:
        known = self._wishes.asking.get(wants)
        if known is None:
            wanted = not names or self.changed(*names)
            rows = [row for row in self.chosen if wants(self.params[row])] if wanted else []
            known = self._wishes.asking[wants] = Asking(rows, self.params, self.device)
        return known

    def uniform(self, asking: Asking, use: int = DRAW) -> NDArray[np.float64]:
        """A random number in [0, 1) for the next position of each of some rows."""
        known = np.array([self.tasks[row].n_tokens for row in asking.rows], dtype=np.int64)
        if self.ahead is not None:
            known += self.ahead[asking.rows]
        return uniform(asking.seeds, known, use)

    def _wishes_of(self, chosen: Sequence[int]) -> _Wishes:
        changed = frozenset[str]().union(*[_changed(self.tasks[row]) for row in chosen])
        return _Wishes(self.params, changed, chosen)


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _changed(task: Task) -> frozenset[str]:
    """The fields in which a task's sampling is not neutral; they stay the same all its life."""
    if task.changed is None:
        task.changed = frozenset(
            field.name
            for field in fields(SamplingParams)
            if getattr(task.sampling, field.name) != field.default
        )
    return task.changed


# Fields of strategies that look at the logits and the position, and at no token before it.
BLIND = frozenset(
    {
        *("temperature", "seed", "top_k", "top_p", "min_p", "min_keep"),
        *("typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "samplers"),
    }
)


def is_blind(task: Task) -> bool:
    """Whether its next token can be drawn without knowing the one before, but for its logits."""
    request = task.request
    return (
        task.grammar is None
        and not request.min_tokens
        and request.thinking is None
        and request.prompt_logprobs is None
        and _changed(task) <= BLIND
    )

"""The rows of a batch whose next tokens are sampled, and the parameters of each.

A row's parameters stay the same as long as it lives: they are looked up once for a batch, and not
in every step.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields
from operator import is_

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.rng import stream_keys
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import to_device

SEED_BITS = (1 << 64) - 1

# Must be a function of a module: groups are cached by it.
Predicate = Callable[[SamplingParams], bool]


class ParamGroup:
    """The rows of a batch that one strategy changes, and their parameters."""

    def __init__(
        self, rows: Sequence[int], params: Sequence[SamplingParams], device: torch.device
    ) -> None:
        """`rows` are row numbers of the batch; `params` are those of the whole batch."""
        self.rows = rows
        self.params = [params[row] for row in rows]
        self._device = device
        self._is_all = len(rows) == len(params)
        self.index = to_device(np.array(rows, dtype=np.int64), device)  # `rows` on the device
        self._columns: dict[str, Tensor] = {}
        self.seeds = np.array(
            [sampling.seed & SEED_BITS for sampling in self.params], dtype=np.uint64
        )

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Tensor:
        """One parameter of these rows, to be broadcast over the vocabulary. [rows, 1] float32"""
        if name not in self._columns:
            values = [getattr(sampling, name) for sampling in self.params]
            column = torch.tensor(values, dtype=torch.float32)  # infinite where numpy would warn
            column = to_device(column.numpy(), self._device)
            self._columns[name] = column[:, None]
        return self._columns[name]

    def take(self, logits: Tensor) -> Tensor:
        """Returns these rows [rows, ...] of all [batch, ...]. Logits may be changed in place, and
        must be `put` back."""
        return logits if self._is_all else logits[self.index]

    def put(self, logits: Tensor, part: Tensor) -> None:
        """Writes what was taken back. `logits` [batch, ...], `part` [rows, ...]"""
        if not self._is_all:
            logits[self.index] = part
        elif part is not logits:
            logits.copy_(part)


class GroupCache:
    """The groups of some rows of a batch, as far as strategies have asked for them."""

    def __init__(
        self,
        params: Sequence[SamplingParams],
        non_default: frozenset[str],
        selected: Sequence[int],
    ) -> None:
        self.params = params
        self.non_default = non_default
        self.selected = selected
        self.groups: dict[Predicate, ParamGroup] = {}
        self.subsets: dict[tuple[int, ...], GroupCache] = {}


class SamplingRows:
    """The tasks whose next tokens are sampled together. Strategies see only `selected` rows."""

    def __init__(
        self,
        tasks: Sequence[Task],
        device: torch.device,
        previous: GroupCache | None = None,
        n_ahead: NDArray[np.int64] | None = None,
        newest_ids: Tensor | None = None,
        *,
        is_guess: bool = False,
    ) -> None:
        """`previous` is the cache of the last step's rows. If they had the same parameters, nothing
        is looked up again.

        `n_ahead` [rows] is the number of tokens between the last known one and the one to sample;
        None stands for 0 in all rows. `newest_ids` [rows] int64 on the device are these tokens
        where the host does not know them, one in a row at most; -1 in the other rows. `is_guess`:
        constraints say what may follow only later.
        """
        self.n_ahead = n_ahead
        self.is_guess = is_guess
        self.newest_ids = newest_ids
        self.tasks = tasks
        self.device = device
        self.params = [task.request.sampling for task in tasks]
        if previous is None or not _are_same(self.params, previous.params):
            previous = self._cache_of(range(len(tasks)))
        self.cache = previous

    @property
    def selected(self) -> Sequence[int]:
        """Row numbers."""
        return self.cache.selected

    def select(self, selected: Sequence[int]) -> "SamplingRows":
        """The same batch with these row numbers as the `selected` ones."""
        key = tuple(selected)
        if key not in self.cache.subsets:
            self.cache.subsets[key] = self._cache_of(selected)
        subset = copy(self)
        subset.cache = self.cache.subsets[key]
        return subset

    def has_non_default(self, *names: str) -> bool:
        """Whether any row has another value than the default in any of these fields.

        A batch in which no row uses a strategy should not even be searched for such rows.
        """
        return not self.cache.non_default.isdisjoint(names)

    def has_non_default_except(self, *names: str) -> bool:
        """Whether any row has another value than the default in any other field."""
        return not self.cache.non_default.issubset(names)

    def where(self, predicate: Predicate, *names: str) -> Sequence[int]:
        """Numbers of the selected rows for which the predicate is true. It must be false where the
        fields of these names have their default values."""
        return self.group(predicate, *names).rows

    def group(self, predicate: Predicate, *names: str) -> ParamGroup:
        """Like `where`, with the rows' parameters."""
        found = self.cache.groups.get(predicate)
        if found is None:
            is_used = not names or self.has_non_default(*names)
            rows = [row for row in self.selected if predicate(self.params[row])] if is_used else []
            found = self.cache.groups[predicate] = ParamGroup(rows, self.params, self.device)
        return found

    def keys(self, group: ParamGroup, stream: int) -> NDArray[np.uint64]:
        """64 random bits for the next position of each row of a group. [rows]"""
        positions = np.array([self.tasks[row].n_tokens for row in group.rows], dtype=np.int64)
        if self.n_ahead is not None:
            positions += self.n_ahead[group.rows]
        return stream_keys(group.seeds, positions, stream)

    def n_tokens_before(self, row: int) -> int:
        """How many tokens of its task stand before the one to sample."""
        n_ahead = 0 if self.n_ahead is None else int(self.n_ahead[row])
        return self.tasks[row].n_tokens + n_ahead

    def n_drafted_before(self, row: int) -> int:
        """How many drafted tokens of its task stand before the one to sample: as many of `n_ahead`
        as the host knows."""
        if self.n_ahead is None or self.newest_ids is not None:
            return 0
        return int(self.n_ahead[row])

    def _cache_of(self, selected: Sequence[int]) -> GroupCache:
        names = [non_default_fields(self.tasks[row]) for row in selected]
        return GroupCache(self.params, frozenset[str]().union(*names), selected)


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def non_default_fields(task: Task) -> frozenset[str]:
    """Names of the fields in which a task's sampling parameters are not the default."""
    if task.sampling_state.non_default is None:
        task.sampling_state.non_default = frozenset(
            field.name
            for field in fields(SamplingParams)
            if getattr(task.sampling, field.name) != field.default
        )
    return task.sampling_state.non_default


# Fields of strategies that read the logits and the position, or find the newest token on the
# device.
DEVICE_FIELDS = frozenset(
    {
        *("temperature", "seed", "top_k", "top_p", "min_p", "min_keep"),
        *("typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "samplers"),
        *("logit_bias", "logprobs", "sampled_logprobs"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    }
)
# Beside these, fields of strategies that read drafted tokens as they read known ones.
DRAFTED_FIELDS = DEVICE_FIELDS | {"penalty_last_n", "bad_words"}


def can_sample_ahead(task: Task) -> bool:
    """Whether the task's next token can be sampled while the device alone knows the token in front
    of it."""
    return (
        not task.constraint.is_masking
        and task.request.thinking is None
        and non_default_fields(task) <= DEVICE_FIELDS
    )


def can_draft(task: Task) -> bool:
    """Whether tokens can be sampled behind drafted ones of the task."""
    return (
        task.constraint.can_look_ahead
        and not task.n_unscored
        and non_default_fields(task) <= DRAFTED_FIELDS
    )

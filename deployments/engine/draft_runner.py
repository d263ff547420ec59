"""Computes what a draft model or a draft head says next: single tokens of many sequences, and what
a draft model has to read before.

Its layers are further ones of the same pages. So its keys and values are found, evicted and given
back with the model's own. They may be missing anywhere: a draft is a guess, whatever made it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.contract.requests import GenerationRequest
from deployments.engine.forward.draft_heads.carried_states import CarriedStates
from deployments.engine.forward.draft_heads.headed import HeadForward
from deployments.engine.forward.draft_heads.recorded import Draws, SingleTokens
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.sampling.draw import plain_draws
from deployments.engine.sampling.sampler import SamplingPipeline
from deployments.engine.sampling.strategy import BANNED
from deployments.engine.tasks.mailbox import NullMailbox
from deployments.engine.tasks.task import Task, make_task
from kv.arrays import IntArray
from kv.cache import KVCache


@dataclass(frozen=True, slots=True)
class Guess:
    """The tokens that come next by a guess, for some tasks."""

    token_ids: Sequence[int]  # [tasks]
    probs: Sequence[float]  # [tasks], how sure it is of each; 1 where nobody asks


class GuessRunner(ABC):
    """Owns what guesses. All methods are called on the thread of the runner."""

    def __init__(
        self, cache: KVCache, pipeline: SamplingPipeline, model_vocab_size: int, max_tokens: int
    ) -> None:
        """`model_vocab_size` is that of the model it drafts for. `max_tokens` are of the longest
        sequence that it can read."""
        self._cache = cache
        self._pipeline = pipeline
        self._model_vocab_size = model_vocab_size
        self.max_tokens = max_tokens

    def start(self) -> None:
        """Computes a step, so that no request waits for a kernel to be compiled. Raises whatever
        the step raises."""
        request = GenerationRequest(request_id="probe", prompt_ids=(0,))
        task = make_task(request.request_id, request, NullMailbox(), frozenset(), 2)
        is_admitted = self._cache.allocate(task.id, [], task.n_tokens, spare=0)
        assert is_admitted, "there are no pages to try a step with"
        try:
            self._cache.extend(task.id, task.n_tokens)
            ends = np.ones(1, dtype=np.int64)
            self.say([task], self.compute([task], ends - 1, ends), 0, needs_probs=True)
        finally:
            self._cache.free(task.id)

    @abstractmethod
    def compute(self, tasks: Sequence[Task], begins: IntArray, ends: IntArray) -> Tensor:
        """Reads the tokens `begins` to `ends` [tasks] of each task, which have pages; those behind
        the known ones are drafted. Logits [tasks, vocab] behind the last one of each, which the
        next call may overwrite. Raises whatever the step raises."""

    @torch.inference_mode()
    def say(
        self, tasks: Sequence[Task], logits: Tensor, n_drafted: int, *, needs_probs: bool
    ) -> Guess:
        """The token of each task behind its first `n_drafted` drafted ones, sampled from logits
        [tasks, vocab] by the noise that the model's token will be sampled by: so it is right
        nearly as often as the two models agree, at any temperature."""
        n_missing = self._model_vocab_size - logits.shape[1]
        logits = logits[:, : self._model_vocab_size].float()
        if n_missing > 0:
            logits = F.pad(logits, (0, n_missing), value=BANNED)
        probs = logits.softmax(1) if needs_probs else None
        ids = self._pipeline.guess(logits, tasks, np.full(len(tasks), n_drafted, dtype=np.int64))
        if probs is None:
            return Guess(ids.tolist(), [1.0] * len(tasks))
        return Guess(ids.tolist(), probs.gather(1, ids[:, None])[:, 0].tolist())

    def guess(self, tasks: Sequence[Task], n: int) -> Sequence[Sequence[int]] | None:
        """The `n` tokens that come next of each task [tasks, n], where one call says them all. Its
        pages have room for all but the last one. None: `compute` and `say` do it.

        Raises whatever the call raises.
        """
        return None

    def _step(self, tasks: Sequence[Task], begins: IntArray, ends: IntArray) -> StepInputs:
        n = ends - begins
        spans = zip(tasks, begins.tolist(), ends.tolist(), strict=True)
        behind = n.cumsum()
        return StepInputs(
            token_ids=np.concatenate([task.tokens[begin:end] for task, begin, end in spans]),
            positions=np.arange(behind[-1]) + np.repeat(ends - behind, n),
            total_len=ends,
            new_len=n,
            page_table=self._cache.table.page_table([task.id for task in tasks]),
            logit_indices=behind - 1,
            stale_tails=self._cache.take_uncleared(),
        )


class DraftRunner(GuessRunner):
    """Owns a draft model."""

    def __init__(
        self,
        forward: Forward,
        cache: KVCache,
        pipeline: SamplingPipeline,
        *,
        vocab_size: int,
        model_vocab_size: int,
        max_tokens: int,
    ) -> None:
        """`vocab_size` is the draft model's, `max_tokens` are of its longest sequence."""
        super().__init__(cache, pipeline, model_vocab_size, max_tokens)
        self._forward = forward
        self._vocab_size = vocab_size

    def start(self) -> None:
        """Captures its decode steps on a GPU, too."""
        self._forward.capture(self._cache.shape.max_tasks, self.max_tokens)
        super().start()

    @torch.inference_mode()
    def compute(self, tasks: Sequence[Task], begins: IntArray, ends: IntArray) -> Tensor:
        step = self._step(tasks, begins, ends)
        known_ids = np.where(step.token_ids < self._vocab_size, step.token_ids, 0)
        return self._forward.logits(replace(step, token_ids=known_ids))


class HeadRunner(GuessRunner):
    """Owns a draft head, which reads a single token of each task: the newest one with the state of
    the model before it, a drafted one with the state that the head left in its place."""

    def __init__(
        self,
        forward: HeadForward,
        carried: CarriedStates,
        cache: KVCache,
        pipeline: SamplingPipeline,
        model_vocab_size: int,
    ) -> None:
        super().__init__(cache, pipeline, model_vocab_size, cache.shape.max_tokens)
        self._forward = forward
        self._carried = carried
        self._own_states = torch.empty(0)  # [tasks of the last pass, size]
        self._own_at: dict[Task, int] = {}

    @torch.inference_mode()
    def compute(self, tasks: Sequence[Task], begins: IntArray, ends: IntArray) -> Tensor:
        """The tokens of all tasks are as many behind the newest one, of which a pass before has
        read those before it."""
        step = self._step(tasks, begins, ends)
        if begins[0] < tasks[0].n_tokens:
            slots = self._carried.slots([task.id for task in tasks])
            states = self._carried.before(slots, begins)
        else:
            at = np.array([self._own_at[task] for task in tasks], dtype=np.int64)
            states = self._own_states.index_select(0, self._forward.tensor(at))
        logits, self._own_states = self._forward.guess(step, states)
        self._own_at = {task: row for row, task in enumerate(tasks)}
        return logits

    @torch.inference_mode()
    def guess(self, tasks: Sequence[Task], n: int) -> Sequence[Sequence[int]] | None:
        if not self._forward.can_guess_all or (drawn := plain_draws(tasks, n)) is None:
            return None
        rows = [self._carried.row_before(task.id, task.n_tokens - 1) for task in tasks]
        newest = SingleTokens(
            token_ids=[task.newest for task in tasks],
            positions=[task.n_tokens - 1 for task in tasks],
            page_table=self._cache.table.page_table([task.id for task in tasks]),
            stale_tails=self._cache.take_uncleared(),
        )
        draws = Draws(*drawn, self._model_vocab_size)
        said = self._forward.guess_all(newest, self._carried.states, rows, draws)
        return None if said is None else said.T.tolist()

"""Computes one step: flat tensors in, one drawn token for each row that reached its end out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.loader import UnsupportedModelError
from deployments.engine.matching import begin_masks
from deployments.engine.parallel import Ranks
from deployments.engine.sampling import Sample, SamplingPipeline
from deployments.engine.scoring import score
from deployments.engine.step import Forward, StepInputs
from deployments.engine.task import Task, make_task
from deployments.wire import GenerationRequest, TokenEvent, TokenLogprob
from kv.cache import KVCache


@dataclass(frozen=True, slots=True)
class Row:
    """The next `n` uncomputed tokens of a task."""

    task: Task
    n: int

    @property
    def draws(self) -> bool:
        """Whether the row reaches the task's last known token, so that the next one is drawn."""
        return self.n == self.task.n_uncomputed and self.task.draws

    @property
    def n_scored(self) -> int:
        """Positions whose next tokens are of the prompt and wait for their log-probabilities."""
        task = self.task
        if not task.n_unscored:
            return 0
        # After a preemption some are computed again that were scored before.
        n = task.n_computed + self.n - len(task.prompt_logprobs)
        return max(0, min(n, task.n_unscored))


@dataclass(frozen=True, slots=True)
class Result:
    """What a row came to: the token drawn, and log-probabilities of the prompt's next tokens."""

    sample: Sample | None = None
    prompt_logprobs: Sequence[TokenLogprob] = ()

    @property
    def is_finite(self) -> bool:
        sample = self.sample
        drawn = sample is None or sample.token_id is not None or sample.all_banned
        return drawn and not any(isnan(entry.logprob) for entry in self.prompt_logprobs)


class Runner:
    """Owns the model, or rank 0's share of it. Never decides what runs."""

    def __init__(
        self,
        model: PreTrainedModel,
        cache: KVCache,
        pipeline: SamplingPipeline,
        threads: int,
        ranks: Ranks | None = None,
    ) -> None:
        self._forward = Forward(model, cache.storage)
        self._cache = cache
        self._pipeline = pipeline
        self._threads = threads
        self._ranks = ranks

    def start(self) -> None:
        """To be called on the thread that will `run`, which then has the arithmetic's threads.

        Raises UnsupportedModelError for a model that can't be served.
        """
        torch.set_num_threads(self._threads)
        try:
            self.probe()
        except Exception as error:
            raise UnsupportedModelError(f"the engine can't run this model: {error}") from error

    def probe(self) -> None:
        """Computes one token, and raises what the model raises; needs one page and a free task."""
        request = GenerationRequest(request_id="probe", prompt_ids=(0,))
        task = make_task(request.request_id, request, _Nowhere(), frozenset(), 2)
        self._cache.allocate(task.id, [], task.n_tokens, spare=0)
        self._cache.extend(task.id, task.n_tokens)
        try:
            self.run([Row(task, 1)])
        finally:
            self._cache.free(task.id)

    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> list[Result]:
        """What each row came to; no token for one that ends before its task's last token."""
        drawing = [i for i, row in enumerate(rows) if row.draws]
        tasks = [rows[i].task for i in drawing]
        begin_masks([task.grammar for task in tasks if task.grammar is not None])
        logits = self._logits(rows, drawing)
        samples: dict[int, Sample] = {}
        if drawing:
            drawn = self._pipeline.sample(logits[: len(drawing)].float(), tasks)
            samples = dict(zip(drawing, drawn, strict=True))
        scores = self._score(logits[len(drawing) :], rows)
        return [Result(samples.get(i), scores.get(i, ())) for i in range(len(rows))]

    def _logits(self, rows: Sequence[Row], drawing: Sequence[int]) -> Tensor:
        """Behind the last tokens of the drawing rows, then behind all that are to be scored."""
        n = np.array([row.n for row in rows], dtype=np.int64)
        start = np.array([row.task.n_computed for row in rows], dtype=np.int64)
        ends = n.cumsum()
        positions = np.arange(ends[-1]) + np.repeat(start - (ends - n), n)
        token_ids = np.concatenate(
            [row.task.tokens[row.task.n_computed : row.task.n_computed + row.n] for row in rows]
        )
        step = StepInputs(
            token_ids=token_ids,
            positions=positions,
            total_len=start + n,
            new_len=n,
            page_table=self._cache.table.rows([row.task.id for row in rows]),
            kept=np.concatenate([ends[drawing] - 1, *_scored(rows, ends - n - start)]),
            uncleared=self._cache.take_uncleared(),
        )
        if self._ranks is None:
            return self._forward.logits(step)
        with self._ranks.in_step(step.pack()):
            return self._forward.logits(step)

    def _score(self, logits: Tensor, rows: Sequence[Row]) -> dict[int, list[TokenLogprob]]:
        scores: dict[int, list[TokenLogprob]] = {}
        for i, row in enumerate(rows):
            if n := row.n_scored:
                first = len(row.task.prompt_logprobs) + 1
                ids = self._forward.tensor(row.task.tokens[first : first + n])
                scores[i] = list(score(logits[:n], ids, row.task.request.prompt_logprobs or 0))
                logits = logits[n:]
        return scores


def _scored(rows: Sequence[Row], offsets: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Where in the step the positions to score are; row i's position p is at `offsets[i]` + p."""
    for row, offset in zip(rows, offsets, strict=True):
        if row.n_scored:
            first = len(row.task.prompt_logprobs)
            yield np.arange(first, first + row.n_scored) + offset


class _Nowhere:
    """A mailbox that nobody reads."""

    loop = None

    def put(self, event: TokenEvent) -> None:
        pass

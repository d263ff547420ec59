"""Computes one step: flat tensors in, one drawn token for each row that reached its end out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from deployments.engine.attention import plan_attention
from deployments.engine.loader import UnsupportedModelError
from deployments.engine.sampling import Sample, SamplingPipeline
from deployments.engine.task import Task, make_task
from deployments.wire import GenerationRequest, TokenEvent
from kv.cache import KVCache


@dataclass(frozen=True, slots=True)
class Row:
    """The next `n` uncomputed tokens of a task."""

    task: Task
    n: int

    @property
    def draws(self) -> bool:
        """Whether the row reaches the task's last known token, so that the next one is drawn."""
        return self.n == self.task.n_uncomputed


class Runner:
    """Owns the model. Never decides what runs."""

    def __init__(
        self, model: PreTrainedModel, cache: KVCache, pipeline: SamplingPipeline, threads: int
    ) -> None:
        self._model = model
        self._cache = cache
        self._pipeline = pipeline
        self._device = cache.storage.k.device
        self._threads = threads

    def start(self) -> None:
        """To be called on the thread that will `run`, which then has the arithmetic's threads.

        Runs one token, so that a model that can't be served fails here and not its first user:
        raises UnsupportedModelError.
        """
        torch.set_num_threads(self._threads)
        request = GenerationRequest(request_id="start", prompt_ids=(0,))
        task = make_task(request.request_id, request, _Nowhere(), frozenset(), 2)
        self._cache.allocate(task.id, [], task.n_tokens, spare=0)
        self._cache.extend(task.id, task.n_tokens)
        try:
            self.run([Row(task, 1)])
        except Exception as error:
            raise UnsupportedModelError(f"the engine can't run this model: {error}") from error
        finally:
            self._cache.free(task.id)

    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> list[Sample | None]:
        """The token drawn for each row, None where the row ends before its task's last token."""
        n = np.array([row.n for row in rows], dtype=np.int64)
        start = np.array([row.task.n_computed for row in rows], dtype=np.int64)
        ends = n.cumsum()
        positions = np.arange(ends[-1]) + np.repeat(start - (ends - n), n)
        token_ids = np.concatenate(
            [row.task.tokens[row.task.n_computed : row.task.n_computed + row.n] for row in rows]
        )
        view = self._cache.bind([row.task.id for row in rows], start + n, n)
        drawing = [i for i, row in enumerate(rows) if row.draws]
        logits = self._model(
            input_ids=self._tensor(token_ids)[None],
            position_ids=self._tensor(positions)[None],
            use_cache=False,
            logits_to_keep=self._tensor(ends[drawing] - 1),
            step=plan_attention(view, torch.from_numpy(n)),
        ).logits[0]
        samples: list[Sample | None] = [None] * len(rows)
        if drawing:
            drawn = self._pipeline.sample(logits.float(), [rows[i].task for i in drawing])
            for i, sample in zip(drawing, drawn, strict=True):
                samples[i] = sample
        return samples

    def _tensor(self, array: np.typing.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


class _Nowhere:
    """A mailbox that nobody reads."""

    loop = None

    def put(self, event: TokenEvent) -> None:
        pass

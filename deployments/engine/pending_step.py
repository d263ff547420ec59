"""A step that was launched, and its result when it was computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deployments.contract.events import TokenLogprob
from deployments.engine.outputs.reader import PendingOutputs
from deployments.engine.sampling.sampler import PendingSamples, Sample
from deployments.engine.step_result import StepResult
from deployments.engine.tasks.batch import Ahead, Batch, Progress
from deployments.engine.tasks.task import Task


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step that was launched. A GPU may be computing it still."""

    batch: Batch
    sampled_rows: Sequence[int]  # as `Batch.sampled_rows`, without those that come too late
    samples: PendingSamples | None  # one for each of `sampled_rows`
    prompt_logprobs: Mapping[int, Sequence[TokenLogprob]]
    late_rows: frozenset[int] = frozenset()  # as `StepResult.late_rows`
    # Of a step that was launched ahead: how many tokens of each row's task it takes for computed
    # before it, and how many for known.
    n_computed: Sequence[int] = ()
    n_tokens: Sequence[int] = ()
    # [sampled rows, vocab], where `Runner.settle` is to sample from them
    logits: Tensor | None = None
    stale_rows: frozenset[int] = frozenset()  # as `StepResult.stale_rows`, of a settled step
    outputs: PendingOutputs | None = None  # of the rows of pooling tasks

    @property
    def has_one_sample_per_row(self) -> bool:
        return [*self.sampled_rows] == [*range(len(self.batch.tasks))]

    @property
    def is_certain(self) -> bool:
        """Whether it is known how many tokens each row's task will have, and have computed."""
        is_drafted = len({*self.sampled_rows}) < len(self.sampled_rows)
        return not (self.late_rows or self.stale_rows or is_drafted)

    def progress(self) -> Ahead:
        """The progress of each of its tasks, which must be certain."""
        tasks, sampled = self.batch.tasks, {*self.sampled_rows}
        return {
            task: Progress(n, int(row in sampled))
            for row, (task, n) in enumerate(zip(tasks, self.batch.new_len, strict=True))
        }

    @torch.inference_mode()
    def result(self) -> StepResult:
        """Waits for the step. Raises whatever the device raised while it computed."""
        sampled = [] if self.samples is None else self.samples.result()
        if self.has_one_sample_per_row:
            samples_of_rows = [(only_sample,) for only_sample in sampled]
            return StepResult(samples_of_rows, self.prompt_logprobs, stale_rows=self.stale_rows)
        tasks = self.batch.tasks
        samples: list[list[Sample]] = [[] for _ in tasks]
        for row, sample in zip(self.sampled_rows, sampled, strict=True):
            if _is_accepted(samples[row], tasks[row]):
                samples[row].append(sample)
        pooled = {} if self.outputs is None else self.outputs.result()
        late_rows, stale_rows = self.late_rows, self.stale_rows
        return StepResult(samples, self.prompt_logprobs, late_rows, stale_rows, pooled)


def _is_accepted(before: Sequence[Sample], task: Task) -> bool:
    """Whether a sample counts: the samples `before` it in its row are the tokens drafted there, and
    with none of them a constraint begins."""
    n = len(before)
    if n == 0:
        return True
    drafted = task.tokens[task.n_tokens : task.n_tokens + n]
    if before[-1].token_id != drafted[-1]:
        return False
    return not task.constraint.begins_in(drafted.tolist())

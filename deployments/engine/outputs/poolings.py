"""The ways to make an answer of what the model computes of a pooling task, a class for each.

A class says which hidden states or logits it needs of a row, and makes of them what the task
carries to its next chunk, or its answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deployments.contract.outputs import AlignParams, LabelParams, Pooling
from deployments.engine.outputs.alignment import attention_map
from deployments.engine.tasks.pooled import Pooled
from deployments.engine.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Chunk:
    """The new tokens of a pooling task in a step: from `first` up to `end`."""

    task: Task
    pooled: Pooled
    first: int
    end: int

    @property
    def is_last(self) -> bool:
        return self.end >= self.task.n_tokens

    @property
    def carried(self) -> Tensor | None:
        """The result of earlier chunks, unless the task was begun anew."""
        return self.pooled.carried if self.first else None


@dataclass(frozen=True, slots=True)
class Computed:
    """The numbers that a step has computed for a chunk.

    states: of the tokens that are needed. [n, hidden]
    logits: behind the last token, where they are needed. [vocab]
    weights: of the heads that tell when a token is heard, in parts [heads, tokens, states].
    """

    states: Tensor
    logits: Tensor | None
    weights: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Made:
    """carried: for the next chunk. vectors: of the answer. [n, size]
    state: the whole prompt's, of which heads and dense layers make its vector. [hidden]
    """

    carried: Tensor | None = None
    vectors: Tensor | None = None
    state: Tensor | None = None


class BasePooling:
    def states(self, chunk: Chunk) -> tuple[int, int]:
        """The first position whose hidden state is needed, and how many are; by default none."""
        return chunk.first, 0

    def needs_logits(self, chunk: Chunk) -> bool:
        """Whether the logits behind the chunk are needed."""
        return False

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        raise NotImplementedError


class LastPooling(BasePooling):
    def states(self, chunk: Chunk) -> tuple[int, int]:
        return chunk.end - 1, int(chunk.is_last)

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        return Made(state=computed.states[0].float()) if chunk.is_last else Made()


class ClsPooling(BasePooling):
    def states(self, chunk: Chunk) -> tuple[int, int]:
        return chunk.first, int(chunk.first == 0)

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        is_first = len(computed.states) > 0
        found = computed.states[0].float() if is_first else chunk.carried
        return Made(state=found) if chunk.is_last else Made(carried=found)


class MeanPooling(BasePooling):
    """Sums in float32."""

    def states(self, chunk: Chunk) -> tuple[int, int]:
        return chunk.first, chunk.end - chunk.first

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        total, before = computed.states.float().sum(0), chunk.carried
        total = total if before is None else before + total
        return Made(state=total / chunk.task.n_tokens) if chunk.is_last else Made(carried=total)


class TokenPooling(BasePooling):
    """Makes a vector for each token. Those before were made before the task was preempted."""

    def states(self, chunk: Chunk) -> tuple[int, int]:
        first = max(chunk.first, chunk.pooled.n_vectors)
        return first, max(0, chunk.end - first)

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        return Made(vectors=computed.states.float()) if len(computed.states) else Made()


class LogitsPooling(BasePooling):
    """Answers with the log-probabilities of some tokens as the next one, or with what a head has in
    the place of the vocabulary's."""

    def needs_logits(self, chunk: Chunk) -> bool:
        return chunk.is_last

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        if computed.logits is None:
            return Made()
        output, logits = chunk.task.request.output, computed.logits.float()
        if not isinstance(output, LabelParams):
            return Made(vectors=logits[None])
        ids = torch.tensor(output.token_ids, device=logits.device)
        return Made(vectors=logits.log_softmax(-1).index_select(0, ids)[None])


class Alignment(BasePooling):
    """Answers with what each token of a transcript attends to in its sound."""

    def make(self, chunk: Chunk, computed: Computed) -> Made:
        weights, before = torch.cat([*computed.weights]), chunk.carried
        weights = weights if before is None else torch.cat([before, weights], dim=1)
        if not chunk.is_last:
            return Made(carried=weights)
        output = chunk.task.request.output
        assert isinstance(output, AlignParams)
        return Made(vectors=attention_map(weights[:, output.n_before :]))


POOLINGS = {
    Pooling.LAST: LastPooling(),
    Pooling.CLS: ClsPooling(),
    Pooling.MEAN: MeanPooling(),
    Pooling.TOKEN: TokenPooling(),
}
LOGITS, ALIGNMENT = LogitsPooling(), Alignment()


def pooling_of(pooled: Pooled) -> BasePooling:
    if pooled.aligns:
        return ALIGNMENT
    return LOGITS if pooled.pooling is None else POOLINGS[pooled.pooling]

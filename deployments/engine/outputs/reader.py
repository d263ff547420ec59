"""Makes the vectors of a step's rows of what the model has computed for them.

The result of a row depends on its own tokens alone, and on nothing that was not committed before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from deployments.contract.outputs import AlignParams, LabelParams, OutputParams, Pooling, PoolParams
from deployments.engine.forward.cross_attention import AlignmentWeights
from deployments.engine.forward.inputs import NO_TOKENS, StepInputs
from deployments.engine.outputs.alignment import attention_map, first_states
from deployments.engine.outputs.model_outputs import ModelOutputs
from deployments.engine.outputs.vectors import finish_vectors, pack
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.pooled import Pooled, PooledChunk
from deployments.engine.tasks.task import Task
from kv.arrays import IntArray


@dataclass(frozen=True, slots=True)
class OutputRow:
    """The row of a pooling task in a batch.

    first, n: the positions whose hidden states are needed. logit_position: of the token whose
    logits are; -1: none are.
    """

    row: int
    task: Task
    pooled: Pooled
    first: int
    n: int
    logit_position: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The rows of pooling tasks in a batch, in its order."""

    rows: Sequence[OutputRow]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def added_to(self, step: StepInputs, batch: Batch, offsets: IntArray) -> StepInputs:
        """The inputs of the batch, with what its vectors need."""
        logit_indices = np.concatenate([step.logit_indices, self.logit_indices(offsets)])
        return replace(
            step,
            logit_indices=logit_indices,
            hidden_indices=self.hidden_indices(offsets),
            second_at=np.array([task.request.second_at for task in batch.tasks], dtype=np.int64),
        )

    def hidden_indices(self, offsets: IntArray) -> IntArray:
        """Returns the indices, in the flat batch, of the tokens whose hidden states are needed.
        `offsets` [rows] is by how much a row's positions are ahead of its indices."""
        parts = [
            np.arange(entry.first, entry.first + entry.n) - offsets[entry.row]
            for entry in self.rows
        ]
        return np.concatenate(parts) if parts else NO_TOKENS

    def logit_indices(self, offsets: IntArray) -> IntArray:
        """Returns the indices, in the flat batch, of the tokens whose logits are needed."""
        needed = [entry for entry in self.rows if entry.logit_position >= 0]
        at = [entry.logit_position - offsets[entry.row] for entry in needed]
        return np.array(at, dtype=np.int64)


NO_ROWS = OutputRows(())


def output_rows(batch: Batch, sampled_rows: Sequence[int]) -> OutputRows:
    if len(sampled_rows) == len(batch.tasks) == len({*sampled_rows}):  # none is left
        return NO_ROWS
    return OutputRows(
        [
            _output_row(row, task, task.pooled, batch.new_len[row])
            for row, task in enumerate(batch.tasks)
            if task.pooled is not None
        ]
    )


def _output_row(row: int, task: Task, pooled: Pooled, new_len: int) -> OutputRow:
    first, end = task.n_computed, task.n_computed + new_len
    is_last = end >= task.n_tokens
    n, logit_position = 0, -1
    match pooled.pooling:
        case None:
            logit_position = end - 1 if is_last and not pooled.aligns else -1
        case Pooling.LAST:
            first, n = end - 1, int(is_last)
        case Pooling.CLS:
            n = int(first == 0)
        case Pooling.MEAN:
            n = new_len
        case Pooling.TOKEN:  # those before were made before it was preempted
            first = max(first, pooled.n_vectors)
            n = max(0, end - first)
    return OutputRow(row, task, pooled, first, n, logit_position, is_last)


@dataclass(frozen=True, slots=True)
class PendingOutputs:
    """The outputs that a device may be computing still, by row.

    normalizes: what the model does. Vectors of tokens that are not its own stay as they are.
    """

    carried: Mapping[int, Tensor]
    vectors: Mapping[int, Tensor]  # [n, size]; of transcripts, what each token attends to
    params: Mapping[int, OutputParams | None]
    normalizes: bool
    normalizes_tokens: bool
    rows: Sequence[int]

    def result(self) -> dict[int, PooledChunk]:
        """Waits for it."""
        return {row: self._chunk(row) for row in self.rows}

    def _chunk(self, row: int) -> PooledChunk:
        carried, found = self.carried.get(row), self.vectors.get(row)
        is_finite = carried is None or bool(carried.isfinite().all())
        if found is None:
            return PooledChunk(carried, is_finite=is_finite)
        numbers = found.cpu().numpy()
        is_finite = is_finite and bool(np.isfinite(numbers).all())
        params = self.params[row]
        if isinstance(params, AlignParams):
            numbers = first_states(numbers)[None]
        elif isinstance(params, PoolParams):
            is_of_tokens = params.pooling is Pooling.TOKEN
            normalizes = self.normalizes_tokens if is_of_tokens else self.normalizes
            numbers = finish_vectors(numbers, params, normalizes=normalizes)
        return PooledChunk(carried, pack(numbers), is_finite)


class OutputReader:
    """The reader of one model's outputs, on the thread that runs the model."""

    def __init__(self, outputs: ModelOutputs) -> None:
        self._outputs = outputs

    def launch(
        self,
        rows: OutputRows,
        logits: Tensor,
        hidden: Tensor,
        alignment_weights: AlignmentWeights,
    ) -> PendingOutputs:
        """logits [rows that need some, vocab], hidden [tokens that are needed, hidden];
        `alignment_weights` are of the rows to align, in parts [heads, tokens, states]."""
        carried: dict[int, Tensor] = {}
        vectors: dict[int, Tensor] = {}
        pooled: dict[int, Tensor] = {}
        n_logits = begin = 0
        for entry in rows.rows:
            states, begin = hidden[begin : begin + entry.n], begin + entry.n
            if entry.logit_position >= 0:
                vectors[entry.row] = _of_logits(entry.task, logits[n_logits])
                n_logits += 1
            elif entry.pooled.aligns:
                new = torch.cat([*alignment_weights[entry.row]])
                weights = _behind_carried(entry, new)
                if entry.is_last:
                    vectors[entry.row] = attention_map(weights[:, _n_before(entry.task) :])
                else:
                    carried[entry.row] = weights
            elif entry.pooled.pooling is Pooling.TOKEN:
                if entry.n:
                    vectors[entry.row] = self._of_tokens(states.float())
            elif entry.pooled.pooling is not None:
                found = _carried(entry, states)
                if entry.is_last:
                    assert found is not None
                    pooled[entry.row] = _whole(entry, found)
                elif found is not None:
                    carried[entry.row] = found
        if pooled:
            vectors |= self._of_pooled(rows, pooled)
        params = {entry.row: entry.task.request.output for entry in rows.rows}
        kinds = self._outputs.kinds
        return PendingOutputs(
            carried=carried,
            vectors=vectors,
            params=params,
            normalizes=kinds.normalizes,
            normalizes_tokens=kinds.normalizes and kinds.pooling is Pooling.TOKEN,
            rows=[entry.row for entry in rows.rows],
        )

    def _of_tokens(self, states: Tensor) -> Tensor:
        own, dense = self._outputs.kinds.pooling, self._outputs.dense
        if dense is None or own is not Pooling.TOKEN:
            return states
        return _through(dense, states)

    def _of_pooled(self, rows: OutputRows, pooled: dict[int, Tensor]) -> dict[int, Tensor]:
        """pooled: by row, [hidden]. Rows that go through the same modules do so together."""
        outputs, found = self._outputs, dict[int, Tensor]()
        headed, dense, bare = list[int](), list[int](), list[int]()
        for entry in rows.rows:
            if entry.row in pooled:
                params = entry.task.request.output
                has_dense = entry.pooled.pooling is outputs.kinds.pooling
                is_headed = isinstance(params, PoolParams) and params.use_head
                (headed if is_headed else dense if has_dense else bare).append(entry.row)
        if headed:
            assert outputs.head is not None
            logits = outputs.head(torch.stack([pooled[row] for row in headed])).float()
            found |= {row: scores[None] for row, scores in zip(headed, logits, strict=True)}
        if dense and outputs.dense is not None:
            made = _through(outputs.dense, torch.stack([pooled[row] for row in dense]))
            found |= {row: vector[None] for row, vector in zip(dense, made, strict=True)}
        else:
            bare += dense
        return found | {row: pooled[row][None] for row in bare}


def _through(dense: torch.nn.Sequential, states: Tensor) -> Tensor:
    """Computes in the dtype of the modules' weights."""
    dtype = next(dense.parameters()).dtype
    made: Tensor = dense(states.to(dtype))
    return made.float()


def _of_logits(task: Task, logits: Tensor) -> Tensor:
    """logits [vocab]. Returns [1, labels]: log-probabilities, or the logits of a head."""
    output = task.request.output
    if not isinstance(output, LabelParams):
        return logits.float()[None]
    logprobs = logits.float().log_softmax(-1)
    ids = torch.tensor(output.token_ids, device=logits.device)
    return logprobs.index_select(0, ids)[None]


def _n_before(task: Task) -> int:
    assert isinstance(task.request.output, AlignParams)
    return task.request.output.n_before


def _behind_carried(one: OutputRow, weights: Tensor) -> Tensor:
    """weights [heads, new tokens, states]. Returns them behind those of earlier chunks."""
    before = one.pooled.carried if one.task.n_computed else None
    return weights if before is None else torch.cat([before, weights], dim=1)


def _carried(one: OutputRow, states: Tensor) -> Tensor | None:
    """[hidden] in float32: the sum of a task's hidden states so far, or the one that it is about.

    What an earlier chunk has carried counts unless the task was begun anew."""
    before = one.pooled.carried if one.task.n_computed else None
    if one.pooled.pooling is not Pooling.MEAN:
        return states[0].float() if one.n else before
    total = states.float().sum(0)
    return total if before is None else before + total


def _whole(one: OutputRow, carried: Tensor) -> Tensor:
    is_mean = one.pooled.pooling is Pooling.MEAN
    return carried / one.task.n_tokens if is_mean else carried

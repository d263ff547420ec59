"""Makes the vectors of a step's rows of what the model has computed for them.

The result of a row depends on its own tokens alone, and on nothing that was not committed before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from deployments.contract.outputs import AlignParams, OutputParams, Pooling, PoolParams
from deployments.engine.forward.cross_attention import AlignmentWeights
from deployments.engine.forward.inputs import NO_TOKENS, StepInputs
from deployments.engine.outputs.alignment import first_states
from deployments.engine.outputs.model_outputs import ModelOutputs
from deployments.engine.outputs.poolings import BasePooling, Chunk, Computed, Made, pooling_of
from deployments.engine.outputs.vectors import finish_vectors, pack
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.pooled import Pooled, PooledChunk
from deployments.engine.tasks.task import Task
from kv.arrays import IntArray


@dataclass(frozen=True, slots=True)
class OutputRow:
    """The row of a pooling task in a batch.

    first, n: the positions whose hidden states are needed.
    """

    row: int
    chunk: Chunk
    pooling: BasePooling
    first: int
    n: int
    needs_logits: bool


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
        needed = [entry for entry in self.rows if entry.needs_logits]
        at = [entry.chunk.end - 1 - offsets[entry.row] for entry in needed]
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
    chunk = Chunk(task, pooled, task.n_computed, task.n_computed + new_len)
    pooling = pooling_of(pooled)
    return OutputRow(row, chunk, pooling, *pooling.states(chunk), pooling.needs_logits(chunk))


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
        made: dict[int, Made] = {}
        of_rows = iter(logits)
        begin = 0
        for entry in rows.rows:
            states, begin = hidden[begin : begin + entry.n], begin + entry.n
            own = next(of_rows) if entry.needs_logits else None
            computed = Computed(states, own, alignment_weights.get(entry.row, ()))
            made[entry.row] = entry.pooling.make(entry.chunk, computed)
        vectors = {
            row: found for row, of_row in made.items() if (found := of_row.vectors) is not None
        }
        if (own_kind := self._outputs.kinds.pooling) is Pooling.TOKEN:
            vectors |= self._through_dense(rows, vectors, own_kind)
        whole = {row: state for row, of_row in made.items() if (state := of_row.state) is not None}
        if whole:
            vectors |= self._of_whole(rows, whole)
        carried = {
            row: found for row, of_row in made.items() if (found := of_row.carried) is not None
        }
        params = {entry.row: entry.chunk.task.request.output for entry in rows.rows}
        kinds = self._outputs.kinds
        return PendingOutputs(
            carried=carried,
            vectors=vectors,
            params=params,
            normalizes=kinds.normalizes,
            normalizes_tokens=kinds.normalizes and kinds.pooling is Pooling.TOKEN,
            rows=[entry.row for entry in rows.rows],
        )

    def _through_dense(
        self, rows: OutputRows, vectors: Mapping[int, Tensor], own: Pooling
    ) -> dict[int, Tensor]:
        """The vectors of tokens, where the model's own are made by dense layers."""
        dense = self._outputs.dense
        of_tokens = [entry.row for entry in rows.rows if entry.chunk.pooled.pooling is own]
        if dense is None:
            return {}
        return {row: _through(dense, vectors[row]) for row in of_tokens if row in vectors}

    def _of_whole(self, rows: OutputRows, whole: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """whole: by row, [hidden]. Rows that go through the same modules do so together."""
        outputs, found = self._outputs, dict[int, Tensor]()
        headed, dense, bare = list[int](), list[int](), list[int]()
        for entry in [entry for entry in rows.rows if entry.row in whole]:
            params = entry.chunk.task.request.output
            has_dense = entry.chunk.pooled.pooling is outputs.kinds.pooling
            is_headed = isinstance(params, PoolParams) and params.use_head
            (headed if is_headed else dense if has_dense else bare).append(entry.row)
        if headed:
            assert outputs.head is not None
            logits = outputs.head(torch.stack([whole[row] for row in headed])).float()
            found |= {row: scores[None] for row, scores in zip(headed, logits, strict=True)}
        if dense and outputs.dense is not None:
            made = _through(outputs.dense, torch.stack([whole[row] for row in dense]))
            found |= {row: vector[None] for row, vector in zip(dense, made, strict=True)}
        else:
            bare += dense
        return found | {row: whole[row][None] for row in bare}


def _through(dense: torch.nn.Sequential, states: Tensor) -> Tensor:
    """Computes in the dtype of the modules' weights."""
    dtype = next(dense.parameters()).dtype
    made: Tensor = dense(states.to(dtype))
    return made.float()

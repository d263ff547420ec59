"""Computes one step: a batch in, the tokens sampled behind its rows out.

Nothing is decided here. A step that was launched may be in progress on a GPU while the next one is
launched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from deployments.contract.events import TokenLogprob
from deployments.contract.outputs import Pooling, PoolParams
from deployments.contract.requests import GenerationRequest
from deployments.engine.attention.gpu import MAX_SMALL_CHUNK
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.cross_attention import NO_WEIGHTS
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.inputs import NO_TOKENS, StepInputs
from deployments.engine.kernels.cpu import streaming
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU
from deployments.engine.needs.need import Need
from deployments.engine.outputs.model_outputs import ModelOutputs
from deployments.engine.outputs.reader import OutputReader, OutputRows, output_rows
from deployments.engine.pending_step import PendingStep
from deployments.engine.sampling.logprobs import score_tokens
from deployments.engine.sampling.rows import can_sample_ahead
from deployments.engine.sampling.sampler import PendingSamples, SamplingPipeline
from deployments.engine.tasks import batch_columns as columns
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.mailbox import NullMailbox
from deployments.engine.tasks.pooled import Pooled
from deployments.engine.tasks.task import Task, make_task
from kv.arrays import IntArray
from kv.cache import KVCache


class Runner:
    """Owns the model, or rank 0's share of it. All methods are called on one thread."""

    def __init__(
        self,
        forward: Forward,
        cache: KVCache,
        pipeline: SamplingPipeline,
        threads: int,
        outputs: ModelOutputs | None = None,
        needs: Sequence[Need] = (),
    ) -> None:
        """`threads` is how many of the CPU compute a step. `outputs` says how the model answers
        with vectors, where it does. `needs` bring inputs of steps."""
        self._outputs = outputs or ModelOutputs()
        self._reader = OutputReader(self._outputs)
        self._needs = needs
        self._forward = forward
        self._cache = cache
        self._pipeline = pipeline
        self._threads = threads

    @property
    def computes_whole_prompts(self) -> bool:
        """Whether each prompt is computed in one step, as encoders need it."""
        return self._outputs.is_encoder

    def start(self) -> None:
        """Tries the model, and captures CUDA graphs on a GPU. To be called first, on the thread
        that calls all else: torch's number of threads and its device are set for it.

        Raises UnsupportedModelError for a model that can't be served.
        """
        torch.set_num_threads(self._threads)
        device = self._cache.storage.device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # of this thread; kernels and streams go by it
            # Otherwise torch computes float32 convolutions in TF32.
            torch.backends.cudnn.allow_tf32 = False
        elif has_matmul_kernels():
            streaming.measure()
        try:
            # Chunks are computed by other code than single tokens, drafts and small chunks.
            shape, chunk = self._cache.shape, max(MAX_DRAFTED_STEP_CPU, MAX_SMALL_CHUNK) + 1
            for n_tokens in (1, min(chunk, shape.max_new_tokens or chunk, shape.max_tokens - 1)):
                self.probe(n_tokens)
        except Exception as error:
            raise UnsupportedModelError(f"the engine can't run this model: {error}") from error
        self._forward.capture(shape.max_tasks, shape.max_tokens)

    def stop(self) -> None:
        """No step may follow. After it ranks can part."""
        self._forward.drop_graphs()

    def probe(self, n_tokens: int = 1) -> None:
        """Computes one step of a prompt of `n_tokens`, whose result nobody needs.

        Raises whatever the model raises. Needs pages for the prompt and a free row of the cache.
        """
        request = GenerationRequest(request_id="probe", prompt_ids=(0,) * n_tokens)
        pooled = None
        if not self._outputs.kinds.can_generate:
            request = replace(request, max_tokens=0, output=PoolParams())
            pooled = Pooled(Pooling.LAST)
        task = make_task("probe", request, NullMailbox(), frozenset(), n_tokens + 1, pooled)
        is_admitted = self._cache.allocate(task.id, [], task.n_tokens, spare=0)
        assert is_admitted, "there are no pages to try a step with"
        try:
            has_pages = self._cache.extend(task.id, task.n_tokens)
            assert has_pages, "there are no pages to try a step with"
            self.launch(Batch([task], [n_tokens])).result()
        finally:
            self._cache.free(task.id)

    @torch.inference_mode()
    def launch(self, batch: Batch) -> PendingStep:
        """Begins a step. The tasks' pages must hold all tokens of the batch.

        Raises whatever the model raises, RanksLostError among it; some errors of a GPU come with
        the step's `result` only.
        """
        sampled_rows, n_scored = batch.sampled_rows(), batch.n_scored()
        self._begin_sampling(batch, sampled_rows)
        n_ahead = columns.n_drafted_before(sampled_rows)
        output_of = output_rows(batch, sampled_rows)
        step = self._inputs(batch, sampled_rows, n_ahead, n_scored, output_of=output_of)
        logits, hidden = self._forward.compute(step)
        logprobs = self._score(logits[len(sampled_rows) :], batch, n_scored) if n_scored else {}
        outputs = None
        if output_of:
            n_before = len(sampled_rows) + sum(n_scored.values())
            states = step.encoder_states
            weights = NO_WEIGHTS if states is None else states.weights
            outputs = self._reader.launch(output_of, logits[n_before:], hidden, weights)
        sampled_logits = logits[: len(sampled_rows)].float()
        late_rows = self._late_rows(batch, sampled_rows)
        rows, samples = self._sample(sampled_logits, batch, sampled_rows, n_ahead, late_rows)
        return PendingStep(batch, rows, samples, logprobs, late_rows, outputs=outputs)

    @torch.inference_mode()
    def launch_next(self, step: PendingStep, batch: Batch) -> PendingStep:
        """Begins the step after one that is in progress and certain, whose progress is `ahead` of
        the batch. No log-probabilities of a prompt may be asked for.

        Where one of the rows can't be sampled before the host knows what the step in progress
        samples, all wait for it, and the model does not. No vectors may be asked for either. Raises
        as `launch`.
        """
        rows = batch.sampled_rows()
        tasks = [batch.tasks[row] for row in rows]
        n_unknown = batch.n_unknown()
        n_ahead = np.array([n_unknown[row] for row in rows], dtype=np.int64)
        known, unknown = (n_ahead == 0).nonzero()[0], n_ahead.nonzero()[0]
        self._begin_sampling(batch, [rows[i] for i in known])
        newest_ids = self._samples_of(step, [tasks[i] for i in unknown])
        inputs = self._inputs(batch, rows, np.zeros_like(n_ahead), {}, newest_ids)
        logits = self._forward.logits(inputs).float()
        launched = PendingStep(
            batch,
            rows,
            None,
            {},
            n_computed=batch.starts,
            n_tokens=batch.n_known,
            logits=logits,
        )
        if not all(map(can_sample_ahead, tasks)):
            return launched
        samples = None
        if rows:
            if newest_ids is not None and len(known):
                every = newest_ids.new_full((len(rows),), -1)
                every[self._forward.tensor(unknown)] = newest_ids
                newest_ids = every
            assert launched.logits is not None
            samples = self._pipeline.launch(launched.logits, tasks, n_ahead, newest_ids)
        return replace(launched, samples=samples, logits=None)

    @torch.inference_mode()
    def settle(self, step: PendingStep) -> PendingStep:
        """A step that was launched ahead, once the tokens before it are committed: says which rows
        are stale, and samples the others where that had to wait. Raises as `launch`."""
        tasks, logits = step.batch.tasks, step.logits
        alive = [row for row, task in enumerate(tasks) if not task.has_ended]
        stale = {
            row
            for row in alive
            if tasks[row].n_tokens != step.n_tokens[row]
            or tasks[row].n_computed != step.n_computed[row]
        }
        if logits is None:
            bound = [row for row in step.sampled_rows if tasks[row].constraint.is_masking]
            return replace(step, stale_rows=frozenset(stale.union(bound).intersection(alive)))
        live = {*alive} - stale
        going_on = [row for row in step.sampled_rows if row in live]
        self._begin_sampling(step.batch, going_on)
        late = self._late_rows(step.batch, going_on)
        left_out = frozenset({*step.sampled_rows} - {*going_on}) | late
        n_ahead = np.zeros(len(step.sampled_rows), dtype=np.int64)
        rows, samples = self._sample(logits, step.batch, step.sampled_rows, n_ahead, left_out)
        return replace(
            step,
            sampled_rows=rows,
            samples=samples,
            logits=None,
            late_rows=late,
            stale_rows=frozenset(stale),
        )

    def _begin_sampling(self, batch: Batch, rows: Sequence[int]) -> None:
        for need in self._needs:
            need.begin_sampling(batch, rows)

    def _late_rows(self, batch: Batch, rows: Sequence[int]) -> frozenset[int]:
        """Rows to be sampled for which it is not known yet which tokens may follow."""
        late = [need.late_rows(batch, rows) for need in self._needs]
        return frozenset[int]().union(*late)

    def _sample(
        self,
        logits: Tensor,
        batch: Batch,
        rows: Sequence[int],
        n_ahead: IntArray,
        left_out: frozenset[int],
    ) -> tuple[Sequence[int], PendingSamples | None]:
        """The rows that are not left out, and samples for these from logits [rows, vocab]."""
        if left_out:
            kept = [i for i, row in enumerate(rows) if row not in left_out]
            rows, n_ahead = [rows[i] for i in kept], n_ahead[kept]
            logits = logits[self._forward.tensor(np.array(kept, dtype=np.int64))]
        if not rows:
            return rows, None
        return rows, self._pipeline.launch(logits, [batch.tasks[row] for row in rows], n_ahead)

    def _samples_of(self, step: PendingStep, tasks: Sequence[Task]) -> Tensor | None:
        """Returns the ids that a step in progress samples for some tasks, on the device. [tasks]"""
        if not tasks:
            return None
        assert step.samples is not None
        sampled = [step.batch.tasks[row] for row in step.sampled_rows]
        if tasks == sampled:
            return step.samples.token_ids
        index = {task: i for i, task in enumerate(sampled)}
        indices = np.array([index[task] for task in tasks], dtype=np.int64)
        return step.samples.token_ids[self._forward.tensor(indices)]

    def _inputs(
        self,
        batch: Batch,
        sampled_rows: Sequence[int],
        n_ahead: IntArray,
        n_scored: Mapping[int, int],
        newest_ids: Tensor | None = None,
        output_of: OutputRows | None = None,
    ) -> StepInputs:
        """Logits are needed of the tokens that a sample follows, then of all that are to be
        scored, then of those that vectors are made of. `newest_ids` are of the tasks whose newest
        token the step in progress samples."""
        n = np.array(batch.new_len, dtype=np.int64)
        start = np.array(batch.starts, dtype=np.int64)
        # Row i has its position p at index p - offsets[i].
        if len(sampled_rows) == len(batch.tasks) == sum(batch.new_len):  # each row is a decode
            token_ids, positions = columns.newest_ids(batch), start
            newest_at = np.arange(len(n))
            offsets, sampled = start - newest_at, newest_at + n_ahead
        else:
            offsets = start - n.cumsum() + n
            token_ids = columns.token_ids(batch)
            positions = np.arange(len(token_ids)) + np.repeat(offsets, n)
            newest_at = np.array(batch.n_known) - 1 - offsets
            sampled = newest_at[sampled_rows] + n_ahead
        if n_scored:
            scored = columns.scored_indices(batch, n_scored, offsets)
            sampled = np.concatenate([sampled, *scored])
        step = StepInputs(
            token_ids=token_ids,
            positions=positions,
            total_len=start + n,
            new_len=n,
            page_table=self._cache.table.page_table([task.id for task in batch.tasks]),
            logit_indices=sampled,
            stale_tails=self._cache.take_uncleared(),
            sampled_at=NO_TOKENS if newest_ids is None else newest_at[columns.unknown_rows(batch)],
            sampled_ids=newest_ids,
        )
        for need in self._needs:
            step = need.inputs(batch, step)
        return output_of.added_to(step, batch, offsets) if output_of else step

    def _score(
        self, logits: Tensor, batch: Batch, n_scored: Mapping[int, int]
    ) -> dict[int, list[TokenLogprob]]:
        """Maps each row to log-probabilities of the prompt's next tokens.

        logits [sum of n_scored, vocab]
        """
        scores: dict[int, list[TokenLogprob]] = {}
        for row, n in n_scored.items():
            task = batch.tasks[row]
            first = len(task.prompt_logprobs) + 1
            ids = self._forward.tensor(task.tokens[first : first + n])
            n_top = task.request.prompt_logprobs or 0
            scores[row] = list(score_tokens(logits[:n], ids, n_top))
            logits = logits[n:]
        return scores

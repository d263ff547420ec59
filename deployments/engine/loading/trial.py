"""Tries a model before it is served: what the engine computes in parts must be what transformers
computes at once."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.forward import make_forward
from deployments.engine.forward.inputs import StepInputs
from kv.arrays import IntArray
from kv.layout import group_layers
from kv.states import NO_STATE
from kv.storage import Storage

N_TOKENS = 8  # of each of two rows
# Tokens of each row in each step: both rows have chunks and single tokens, also side by side.
STEPS = ((3, 2), (1, 1), (3, 1), (1, 4))
PAGE_SIZE = 16  # tokens, so that a row has one page
# Differences of the logits of a row, relative, that are put down to rounding: in float32, and in
# half precision at least and at most. Between these it is by how much transformers differs from
# itself, as in a model that rounding leads to other experts.
MAX_ROUNDING, MIN_ROUNDING_HALF, MAX_ROUNDING_HALF = 0.01, 0.1, 0.25
TIMES_OWN_DIFFERENCE = 3
BANNED = 1e4  # no logit of a token that may be drawn is so far from 0


class Trial:
    """Two short rows of tokens, and what transformers alone makes of them."""

    def __init__(self, model: PreTrainedModel, attention: str) -> None:
        """`attention` is the implementation of transformers' that it attends by here.

        Raises UnsupportedModelError for a model that transformers itself can't run.
        """
        self._model = model
        self.rows = _token_ids(model)
        with unsupported_on_error(f"transformers can't run {model.config.model_type}"):
            model.set_attn_implementation(attention)
            self._expected = [self._alone(row) for row in self.rows]
            self._rounding = self._find_rounding()

    def _alone(self, row: IntArray) -> Tensor:
        """Logits behind each token. [tokens, vocab]"""
        ids = torch.from_numpy(row)[None].to(self._model.device)
        return _centered(self._model(input_ids=ids, use_cache=False).logits[0])

    def _find_rounding(self) -> float:
        """The largest difference that is rounding: what tokens behind them change of a row."""
        if self._model.dtype is torch.float32:
            return MAX_ROUNDING
        ends = np.cumsum([new_len for new_len, _ in STEPS]).tolist()
        parts = [self._alone(self.rows[0][:end])[begin:end] for begin, end in pairwise([0, *ends])]
        own = _difference(parts, self._expected[0])
        return min(MAX_ROUNDING_HALF, max(MIN_ROUNDING_HALF, TIMES_OWN_DIFFERENCE * own))

    def check(self, execution: Execution) -> None:
        """Raises UnsupportedModelError unless the engine computes the same, step by step and both
        rows at once."""
        with unsupported_on_error(f"{self._model.config.model_type} can't be computed in parts"):
            difference = self.difference(execution)
        if not difference <= self._rounding:
            raise UnsupportedModelError(
                f"{self._model.config.model_type} computes other logits in parts than at once"
            )

    def difference(self, execution: Execution) -> float:
        """Returns the relative difference of all logits of a row; of the worse row."""
        model, n_rows = self._model, len(self.rows)
        layout = execution.layout
        n_groups = len(group_layers(layout))
        n_pages = n_groups * n_rows
        storage = Storage(layout, n_pages, PAGE_SIZE, dtype=model.dtype, device=model.device)
        forward = make_forward(model, execution, storage, n_state_slots=2 * n_rows)
        of_rows: list[list[Tensor]] = [[] for _ in self.rows]
        for step in self._steps(n_groups):
            logits = _centered(forward.logits(step))
            parts = torch.split(logits, step.new_len.tolist())
            for row, part in zip(of_rows, parts, strict=True):
                row.append(part)
        found = zip(of_rows, self._expected, strict=True)
        return max(_difference(parts, expected) for parts, expected in found)

    def _steps(self, n_groups: int) -> Iterator[StepInputs]:
        ends = np.cumsum(STEPS, axis=0)
        for nth, (new_len, total_len) in enumerate(zip(np.array(STEPS), ends, strict=True)):
            spans = [np.arange(end - n, end) for n, end in zip(new_len, total_len, strict=True)]
            slots = np.array([[0, 1], [2, 3]])[:, :: 1 if nth % 2 else -1]
            if nth == 0:
                slots[:, 0] = NO_STATE
            yield StepInputs(
                token_ids=np.concatenate(
                    [row[span] for row, span in zip(self.rows, spans, strict=True)]
                ),
                positions=np.concatenate(spans),
                total_len=total_len,
                new_len=new_len,
                page_table=np.arange(n_groups * len(self.rows)).reshape(n_groups, -1, 1),
                logit_indices=np.arange(new_len.sum()),
                stale_tails=np.empty((0, 3), dtype=np.int64),
                state_slots=slots,
            )


def _token_ids(model: PreTrainedModel) -> tuple[IntArray, IntArray]:
    """Two rows of tokens from all over the vocabulary, without padding."""
    config = model.config.get_text_config(decoder=True)
    step = max(1, config.vocab_size // (N_TOKENS + 2))
    ids = np.arange(1, N_TOKENS + 2) * step % config.vocab_size
    ids = ids[ids != getattr(config, "pad_token_id", None)][:N_TOKENS]
    return ids, ids[::-1].copy()


def _difference(parts: Sequence[Tensor], expected: Tensor) -> float:
    """Returns the relative difference of the logits [tokens, vocab] of a row."""
    return float((torch.cat([*parts]) - expected).norm() / expected.norm())


def _centered(logits: Tensor) -> Tensor:
    """Subtracts what all tokens of the vocabulary have in common, which changes no probability.
    Logits of banned tokens count as 0."""
    logits = logits.float()
    logits = logits.masked_fill(~(logits.abs() < BANNED), 0)
    if logits.shape[-1] == 1:  # a score, and no vocabulary
        return logits
    return logits - logits.mean(-1, keepdim=True)

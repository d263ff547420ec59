"""Attention of encoders: a token attends to all of its row, or to a window of it both ways.

Rows are computed with those of their length, so that nothing is padded and no row changes another.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from deployments.engine.errors import UnsupportedModelError
from kv.arrays import IntArray

WHOLE_ROWS_IMPLEMENTATION = "manta_whole_rows"
# Arguments of attention that change nothing here.
IGNORED_ARGUMENTS = frozenset(
    {
        *("dropout", "training", "is_causal", "position_ids", "cache_position", "use_cache"),
        *("output_attentions", "output_hidden_states", "return_dict", "deterministic"),
    }
)


class WholeRows:
    """The rows of a flat batch, by their lengths."""

    def __init__(self, lengths: IntArray, device: torch.device) -> None:
        """lengths [rows]"""
        self._device = device
        starts = lengths.cumsum() - lengths
        # By length: the indices in the batch of the rows' tokens; None: they are all of the batch.
        self._groups: dict[int, Tensor | None] = {}
        for length in np.unique(lengths).tolist():
            of_rows = starts[lengths == length]
            tokens = (of_rows[:, None] + np.arange(length)).ravel()
            is_all = len(of_rows) == len(lengths)
            self._groups[length] = None if is_all else torch.from_numpy(tokens).to(device)
        self._masks: dict[tuple[int, int], Tensor] = {}

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """q, k and v [tokens, heads, head_dim]; a token sees those less than `window` away. Returns
        [tokens, heads, value_dim]."""
        out = q.new_empty(*q.shape[:2], v.shape[2])
        for length, tokens in self._groups.items():
            parts = (q, k, v) if tokens is None else (x.index_select(0, tokens) for x in (q, k, v))
            rows = [x.view(-1, length, *x.shape[1:]).transpose(1, 2) for x in parts]
            mask, is_grouped = self._mask(length, window), q.shape[1] != k.shape[1]
            found = F.scaled_dot_product_attention(
                rows[0], rows[1], rows[2], attn_mask=mask, scale=scale, enable_gqa=is_grouped
            )
            found = found.transpose(1, 2).flatten(0, 1)
            if tokens is None:
                return found
            out.index_copy_(0, tokens, found)
        return out

    def _mask(self, length: int, window: int | None) -> Tensor | None:
        if window is None or window >= length:
            return None
        if (length, window) not in self._masks:
            at = torch.arange(length, device=self._device)
            self._masks[length, window] = (at[:, None] - at).abs() < window
        return self._masks[length, window]


class CurrentRows:
    """The rows that an encoder computes now. All of its modules share this object."""

    def __init__(self) -> None:
        self.rows: WholeRows | None = None

    @contextmanager
    def running(self, rows: WholeRows) -> Iterator[None]:
        self.rows = rows
        try:
            yield
        finally:
            self.rows = None


_ROWS: WeakKeyDictionary[nn.Module, CurrentRows] = WeakKeyDictionary()


def current_rows(model: nn.Module) -> CurrentRows:
    """The one of a model, which its modules have from the first call on."""
    current = _ROWS.get(model) or CurrentRows()
    _ROWS.update(dict.fromkeys(model.modules(), current))
    return current


def whole_row_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_dim]
    key: Tensor,  # [1, kv_heads, tokens, head_dim]
    value: Tensor,  # [1, kv_heads, tokens, value_dim]
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """The attention function that is registered with transformers for encoders.

    Returns [1, tokens, heads, value_dim]. Raises UnsupportedModelError for arguments that are
    unknown here, and for masks.
    """
    _check_known(module, others, attention_mask)
    current = _ROWS[module]
    assert current.rows is not None, "the model runs outside of a step"
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (given[0].transpose(0, 1) for given in (query, key, value))
    return current.rows.attend(q, k, v, scale, sliding_window)[None], None


def _check_known(module: nn.Module, others: Mapping[str, object], mask: Tensor | None) -> None:
    unknown = {name for name, given in others.items() if given is not None} - IGNORED_ARGUMENTS
    if unknown or mask is not None:
        what = ", ".join(sorted(unknown)) or "a mask of its own"
        raise UnsupportedModelError(f"{type(module).__name__} attends by {what}")


AttentionInterface.register(WHOLE_ROWS_IMPLEMENTATION, whole_row_attention)

"""Runs indexers, which choose the tokens that a token attends to (DeepSeek's sparse attention).

The indexers are transformers' own. Their keys are stored in pages, as those of further layers
behind the model's. As long as a row has no more tokens than are chosen, it attends to all of them,
and nothing is scored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.attention.hf_hook import UNMASKED, current_step
from deployments.engine.attention.selected import (
    ChoosingRows,
    Chosen,
    ChosenTokens,
    LongRow,
    tokens_at_once,
)
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.overriding import override, restore
from kv.arrays import IntArray
from kv.storage import Storage

# Types of models whose indexers take the keys of all tokens from a cache, and give what is chosen.
MODEL_TYPES = frozenset(
    {"deepseek_v32", "glm_moe_dsa", "axk2", "hy_v4", "dots3_note_text", "dots3_note"}
)


INDEXED = "indexed_attention"  # the type of layers that have one, or share what it chooses


def has_known_indexers(config: PretrainedConfig) -> bool:
    return config.get_text_config(decoder=True).model_type in MODEL_TYPES


class _NewKeys:
    """A cache of transformers' that notes the keys of new tokens. Only one of them is scored."""

    keys: Tensor  # [1, tokens, dim]

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        self.keys = indexer_key_states
        return indexer_key_states[:, :1]


class _AllKeys:
    """A cache of transformers' that has the keys of all tokens of a row. [tokens, dim]"""

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        return self._keys[None].to(indexer_key_states.dtype)


class Indexers:
    """The indexers of one model. While they are in use, its attention calls them through this."""

    def __init__(self, model: PreTrainedModel, attentions: list[Any]) -> None:
        self._attentions = attentions
        self._current = current_step(model)
        self._rows: ChoosingRows | None = None
        indexers = [attention.indexer for attention in attentions]
        self.n_chosen: int = min(indexer.index_topk for indexer in indexers)
        config = model.config.get_text_config(decoder=True)
        self._is_everywhere = {*config.layer_types} == {INDEXED}
        first: int = config.num_hidden_layers
        for layer, (attention, indexer) in enumerate(zip(attentions, indexers, strict=True), first):
            override(indexer, "forward", partial(self._select, indexer, layer))
            override(attention, "forward", partial(_unmasked, attention))

    def drop(self) -> None:
        """The model is as transformers has it again."""
        for attention in self._attentions:
            restore(attention, "forward")
            restore(attention.indexer, "forward")

    def must_choose(self, total_len: IntArray) -> bool:
        """Whether some row of a step is longer than what its tokens attend to."""
        return bool((total_len > self.n_chosen).any())

    def seen_lengths(self, total_len: IntArray, new_len: IntArray) -> IntArray | None:
        """How many tokens of each row [rows] attention is to be planned for, where all layers have
        their long rows computed here; None: for all."""
        if not self._is_everywhere:
            return None
        return np.where(total_len > self.n_chosen, new_len, total_len)

    @contextmanager
    def running(self, step: StepInputs, storage: Storage) -> Iterator[None]:
        """Within, the tokens of a step's long rows choose."""
        if self.must_choose(step.total_len):
            self._rows = ChoosingRows(storage, step, self.n_chosen)
        try:
            yield
        finally:
            self._rows = None

    def _select(
        self,
        indexer: Any,
        layer: int,
        hidden_states: Tensor,  # [1, tokens, hidden]
        q_resid: Tensor,  # [1, tokens, rank]
        position_embeddings: tuple[Tensor, Tensor],  # [1, tokens, rotated] each
        *_: object,
        **__: object,
    ) -> ChosenTokens:
        new, forward = _NewKeys(), type(indexer).forward
        seen = torch.ones(1, 1, 1, dtype=torch.bool, device=hidden_states.device)
        forward(indexer, hidden_states, q_resid, position_embeddings, seen, None, cache=new)
        if self._current.attention is not None:
            keys = new.keys[0][:, None].contiguous()
            self._current.attention.store(layer, keys, keys)
        if (rows := self._rows) is None:
            return ChosenTokens()
        inputs = hidden_states, q_resid, *position_embeddings
        chosen = [
            Chosen(row, _choose(indexer, inputs, row, rows.keys(layer, row))) for row in rows.rows
        ]
        return ChosenTokens(rows, chosen)


def _choose(
    indexer: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], row: LongRow, keys: Tensor
) -> Tensor:
    """The positions that each new token of a row chooses, ascending: [tokens, n]. Some at once, as
    many as the row's own length says: what else is in the batch changes no bit."""
    cache, key = _AllKeys(keys), torch.arange(row.total, device=keys.device)
    parts = []
    for tokens in row.blocks(tokens_at_once(row.total * indexer.n_heads, keys)):
        hidden, q_resid, cos, sin = (part[:, tokens] for part in inputs)
        seen = key <= row.positions(tokens, keys.device)[:, None]
        forward = type(indexer).forward
        found = forward(indexer, hidden, q_resid, (cos, sin), seen[None], None, cache=cache)
        parts.append(found[0].long().sort(-1).values)
    return torch.cat(parts)


_IN_USE: WeakKeyDictionary[nn.Module, Indexers] = WeakKeyDictionary()


def use_indexers(model: PreTrainedModel) -> None:
    """Has a model's attention choose what the engine has it choose. Others are left alone."""
    found = [module for module in model.modules() if module._modules.get("indexer") is not None]
    if found and has_known_indexers(model.config):
        _IN_USE[model] = Indexers(model, found)


def drop_indexers(model: PreTrainedModel) -> None:
    """Undoes `use_indexers`."""
    if (indexers := _IN_USE.pop(model, None)) is not None:
        indexers.drop()


def indexers_of(model: PreTrainedModel) -> Indexers | None:
    """The indexers that are in use; None: its tokens attend to all before them."""
    return _IN_USE.get(model)


def _unmasked(
    attention: Any, *args: Any, attention_mask: Tensor | None = None, **named: Any
) -> Any:
    """Calls an attention that cuts a mask for its indexer: where there is none, one of nothing."""
    mask = UNMASKED if attention_mask is None else attention_mask
    return type(attention).forward(attention, *args, attention_mask=mask, **named)

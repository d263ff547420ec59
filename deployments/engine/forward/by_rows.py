"""Runs a model row by row, whole and as transformers has it, with a cache that is the pages.

For models whose attention is not ours to replace: each row is a forward pass of its own, whose
keys, values and states are kept where those of other models are. Slower than one pass for all rows,
and no less exact.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.input_vectors import InputVectors
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.state_pool import CacheOfRows, GivenStates, Key, NoStates
from kv.arrays import IntArray
from kv.states import NO_STATE
from kv.storage import Storage
from kv.view import KvcacheView, bind

Entry = tuple[str, int]  # what is stored, and of which layer as the model counts them
OWN_STATE: Key = ("own", 0, 0)
CACHE_NAMES = ("cache", "past_key_values")  # of arguments, the newer one first


@dataclass(frozen=True, slots=True)
class ByRows:
    """The keys, values and states of a model that is run row by row, and where they are kept.

    layers: the layer of the storage for each entry.
    is_by_token: behind its cache the model computes no more than one token at a time.
    module_states: names of the modules that keep states themselves, and of their attributes.
    own_state: the argument that takes a model's own kind of state, in the place of a cache.
    state_bytes: bytes of all states of one sequence.
    """

    layers: Mapping[Entry, int]
    has_states: bool
    is_by_token: bool = False
    module_states: tuple[tuple[str, str], ...] = ()
    own_state: str | None = None
    state_bytes: int = 0


def attention_of_rows(model: PreTrainedModel) -> str:
    """Which of transformers' implementations such a model attends by."""
    return "sdpa" if getattr(model, "_supports_sdpa", False) else "eager"


class Stored(Protocol):
    """The keys and values of one row."""

    def extend(self, entry: Entry, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Stores those of new tokens, each [kv_heads, tokens, dim]. Returns those of all tokens."""


class _Layer:
    """The attributes that models read of a cache's layer, beside keys, values and states.

    A model that reads more is refused.
    """

    is_initialized = False  # keys and values of images: there are none

    def __init__(self, n_before: int, device: torch.device) -> None:
        self.indexer_position_ids: Tensor | None = None
        if n_before:  # [3, 1, tokens before], as of text: one position in three dimensions
            self.indexer_position_ids = torch.arange(n_before, device=device).expand(3, 1, -1)


class RowCache(Cache):  # type: ignore[misc]
    """One row of a step in the form of transformers' cache."""

    def __init__(
        self, stored: Stored, states: CacheOfRows, token_ids: Tensor, n_layers: int
    ) -> None:
        """token_ids [tokens] are the row's new ones."""
        self.layers = [_Layer(states.n_before, token_ids.device)] * n_layers
        self._stored, self._states = stored, states
        self._n_new = len(token_ids)
        self._is_extended: set[int] = set()  # layers that hold the new tokens

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """[1, kv_heads, tokens, dim] -> the same of all tokens"""
        k, v = self._extend(("attention", layer_idx), key_states, value_states)
        self._is_extended.add(layer_idx)
        return k, v

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        """[1, tokens, dim] -> the same of all tokens"""
        k = indexer_key_states[:, None]
        return self._extend(("index", layer_idx), k, k[..., :0])[0][:, 0]

    def _extend(self, entry: Entry, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if k.shape[:3] != v.shape[:3] or k.shape[0] != 1 or k.shape[2] != self._n_new:
            raise UnsupportedModelError("its cache holds something else than one key a token")
        keys, values = self._stored.extend(entry, k[0], v[0])
        return keys[None], values[None]

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._states.get_conv_state(layer_idx, state_idx)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._states.get_recurrent_state(layer_idx, state_idx)

    def update_conv_state(
        self,
        conv_states: Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: object,
    ) -> Tensor:
        return self._states.update_conv_state(conv_states, layer_idx, state_idx, conv_kernel_size)

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: object
    ) -> Tensor:
        return self._states.update_recurrent_state(recurrent_states, layer_idx, state_idx)

    def has_previous_state(self, *_: object, **__: object) -> bool:
        return self._states.n_before > 0

    def is_recording_past(self, *_: object) -> bool:
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        is_extended = layer_idx in self._is_extended
        return self._states.n_before + (self._n_new if is_extended else 0)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """How many keys there are, and the position of the first one."""
        return self.get_seq_length(layer_idx) + query_length, 0

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def is_initialized(self) -> bool:
        return self._states.n_before > 0 or bool(self._is_extended)

    @property
    def is_compileable(self) -> bool:
        return False


class PagedRow:
    """The keys and values of one row in its pages."""

    def __init__(self, step: StepInputs, row: int, storage: Storage, how: ByRows) -> None:
        self._layers = how.layers
        self._total = int(step.total_len[row])
        own = slice(row, row + 1)
        # Beside a draft model the layers may be of several groups. None of them has a window: a row
        # holds all of its pages.
        tables = step.page_table[:, own, : -(-self._total // storage.page_size)]
        lengths = step.total_len[own], step.new_len[own]
        self._views: dict[int, KvcacheView] = {
            layer: bind(storage, tables[storage.group_of[layer]], *lengths, layer)
            for layer in dict.fromkeys(storage.addressed_as)
        }
        self._storage = storage

    def extend(self, entry: Entry, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        layer = self._layers[entry]
        view, pages = self._views[self._storage.addressed_as[layer]], self._storage.k[layer]
        dim = pages.shape[-1]
        view.write(layer, *(_to_pages(heads, dim).to(pages.dtype) for heads in (k, v)))
        if k.shape[1] == self._total:  # nothing is before them
            return k, v
        found = view.gather(layer)
        keys, values = (tensor[0, : self._total].transpose(0, 1).to(k.dtype) for tensor in found)
        return keys[..., : k.shape[-1]], values[..., : v.shape[-1]]


def _to_pages(heads: Tensor, dim: int) -> Tensor:
    """[heads, tokens, any dim] -> [tokens, heads, dim], with zeros behind"""
    return F.pad(heads.transpose(0, 1), (0, dim - heads.shape[-1]))


class RowTokens(NamedTuple):
    """New tokens of a row. `embedded` [tokens, hidden] is there where some are parts of media."""

    ids: Tensor
    embedded: Tensor | None = None

    def part(self, begin: int, end: int) -> "RowTokens":
        embedded = None if self.embedded is None else self.embedded[begin:end]
        return RowTokens(self.ids[begin:end], embedded)

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The tokens as arguments of a model of transformers'."""
        if self.embedded is None:
            return {"input_ids": self.ids[None]}
        return {"inputs_embeds": self.embedded[None]}


class RowPass:
    """One forward pass of the whole model over new tokens of one row."""

    def __init__(
        self, model: PreTrainedModel, module_states: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Raises UnsupportedModelError for a model that takes no cache of transformers."""
        self._model = model
        self._module_states = [
            (model.get_submodule(name), attribute) for name, attribute in module_states
        ]
        self._n_layers: int = model.config.get_text_config(decoder=True).num_hidden_layers
        arguments = inspect.signature(type(model).forward).parameters
        found = next((argument for argument in CACHE_NAMES if argument in arguments), None)
        if found is None:
            raise UnsupportedModelError(f"{type(model).__name__} takes no cache")
        self._cache_name = found
        self._computes_needed_alone = "logits_to_keep" in arguments

    def __call__(
        self, tokens: RowTokens, stored: Stored, states: CacheOfRows, needed: Sequence[int]
    ) -> Tensor:
        """Logits behind the tokens with the indices `needed`. [needed, vocab]"""
        index = torch.tensor(needed, dtype=torch.int64, device=tokens.ids.device)
        cache = RowCache(stored, states, tokens.ids, self._n_layers)
        arguments: dict[str, object] = {self._cache_name: cache}
        if self._computes_needed_alone:
            arguments["logits_to_keep"] = index
        with self._with_states(states):
            given = self._model(**tokens.inputs, use_cache=True, **arguments)
        logits: Tensor = given.logits[0]
        return logits if self._computes_needed_alone else logits.index_select(0, index)

    @contextmanager
    def _with_states(self, states: CacheOfRows) -> Iterator[None]:
        """Gives modules the states of this row, and takes what they have afterwards."""
        for nth, (module, attribute) in enumerate(self._module_states):
            setattr(module, attribute, states.read.get(("module", nth, 0)))
        yield
        for nth, (module, attribute) in enumerate(self._module_states):
            states.written["module", nth, 0] = getattr(module, attribute)


class OwnStatePass:
    """The same of a model that takes and returns all of its state as one object of its own."""

    def __init__(self, model: PreTrainedModel, argument: str) -> None:
        self._model = model
        self._argument = argument

    def __call__(
        self, tokens: RowTokens, stored: Stored, states: CacheOfRows, needed: Sequence[int]
    ) -> Tensor:
        before = states.read.get(OWN_STATE)
        arguments = {} if before is None else {self._argument: before}
        given = self._model(**tokens.inputs, use_cache=True, **arguments)
        states.written[OWN_STATE] = getattr(given, self._argument)
        index = torch.tensor(needed, dtype=torch.int64, device=tokens.ids.device)
        return given.logits[0].index_select(0, index)  # type: ignore[no-any-return]


def _row_pass(model: PreTrainedModel, how: ByRows) -> RowPass | OwnStatePass:
    if how.own_state is not None:
        return OwnStatePass(model, how.own_state)
    return RowPass(model, how.module_states)


class RowByRow:
    """The forward pass of a model that is run row by row, and the states of all of its slots."""

    def __init__(self, model: PreTrainedModel, how: ByRows, storage: Storage) -> None:
        self._run = _row_pass(model, how)
        self._how = how
        self._embed = model.get_input_embeddings()
        self._storage = storage
        self._slots: dict[int, dict[Key, Tensor]] = {}

    def logits(
        self, step: StepInputs, token_ids: Tensor, vectors: InputVectors | None = None
    ) -> Tensor:
        """token_ids [tokens] -> logits [logits, vocab]"""
        tokens = self._tokens(token_ids, vectors)
        needed, order = np.unique(step.logit_indices, return_inverse=True)
        ends = step.new_len.cumsum()
        parts = []
        for row, end in enumerate(ends.tolist()):
            begin = end - int(step.new_len[row])
            of_row = needed[(needed >= begin) & (needed < end)] - begin
            parts.append(self._row(step, row, tokens.part(begin, end), of_row.tolist()))
        return torch.cat(parts).index_select(0, torch.from_numpy(order).to(token_ids.device))

    def _tokens(self, token_ids: Tensor, vectors: InputVectors | None) -> RowTokens:
        if vectors is None:
            return RowTokens(token_ids)
        embedded: Tensor = self._embed(token_ids)
        vectors.put(embedded)
        return RowTokens(token_ids, embedded)

    def _row(self, step: StepInputs, row: int, tokens: RowTokens, needed: Sequence[int]) -> Tensor:
        """-> [needed, vocab]"""
        n_new = len(tokens.ids)
        n_before = int(step.total_len[row]) - n_new
        is_drafted = (step.state_slots[row : row + 1, 2:] != NO_STATE).any()
        if n_new > 1 and (is_drafted or (self._how.is_by_token and n_before)):
            return self._token_by_token(step, row, tokens, needed)
        slots = step.state_slots[row, :2].tolist() if self._how.has_states else (NO_STATE,) * 2
        read, written = slots
        states = CacheOfRows(
            NoStates() if read == NO_STATE else GivenStates(self._slots[read]), n_before
        )
        stored = PagedRow(step, row, self._storage, self._how)
        logits = self._run(tokens, stored, states, needed)
        if self._how.has_states:
            self._slots[written] = states.written
        return logits

    def _token_by_token(
        self, step: StepInputs, row: int, tokens: RowTokens, needed: Sequence[int]
    ) -> Tensor:
        parts, n_new = list[Tensor](), len(tokens.ids)
        for token in range(n_new):
            one = replace(
                step,
                total_len=step.total_len[row : row + 1] - n_new + 1 + token,
                new_len=np.ones(1, dtype=np.int64),
                page_table=step.page_table[:, row : row + 1],
                state_slots=_slots_of_token(step.state_slots[row : row + 1], token, n_new),
            )
            new = tokens.part(token, token + 1)
            parts.append(self._row(one, 0, new, [0] * (token in needed)))
        return torch.cat(parts)


def _slots_of_token(slots: IntArray, token: int, n_new: int) -> IntArray:
    """The slots of one token, which reads what the one before it has written: behind all tokens,
    unless there are slots for each. [0 or 1, 2 + drafted] -> [0 or 1, 2]"""
    read, written, inner = slots[:, :1], slots[:, 1:2], slots[:, 2 : n_new + 1]
    behind = np.hstack([read, inner, written])
    if not inner.size or (inner == NO_STATE).any():
        behind = np.hstack([read, *[written] * n_new])
    return behind[:, token : token + 2]

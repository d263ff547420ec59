"""Runs layers that keep a state: each row reads its own state and writes a new one.

The layers are transformers' own. They are given the hidden states of single tokens of many rows at
once, or of one row's tokens, and a cache that holds the states of these rows alone.
"""

import inspect
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.attentions import lightning
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.mixer_products import MixerProducts, Part
from deployments.engine.forward.overriding import override
from deployments.engine.forward.state_pool import (
    CacheOfRows,
    GivenStates,
    HostStates,
    Key,
    NoStates,
    StatePool,
)
from deployments.engine.forward.states.delta_net import DeltaNet, delta_net
from deployments.engine.forward.states.token_slots import StaticTokenSlots
from deployments.engine.kernels.cpu.states.delta_ops import TokenSlots
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.states import NO_STATE

log = logging.getLogger(__name__)

N_TRIED, N_BEGUN = 7, 3  # tokens that each kind of mixer is tried with, at once and in two parts
MAX_ERROR = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.02}  # relative, of these
MIN_ERROR, TIMES_LEAST = 1e-3, 3  # relative; of the way to go on that has the least error
NEEDED = (5, 23)  # the first transformers with the cache that `CacheOfRows` stands in for

# hidden states [rows, tokens, hidden] and the cache of these rows -> [rows, tokens, hidden]
Mixer = Callable[[Tensor, CacheOfRows], Tensor]


def can_keep_states() -> bool:
    """Whether the installed transformers is new enough for layers that keep a state."""
    return tuple(int(part) for part in transformers.__version__.split(".")[:2]) >= NEEDED


def find_mixers(model: PreTrainedModel) -> list[nn.Module]:
    """The modules of a model that keep a state: those with a convolution that take transformers'
    cache, and lightning attention. No module where transformers is too old."""
    if not can_keep_states():
        return []
    return [
        module
        for module in model.modules()
        if lightning.is_lightning(module) or _is_convolving(module)
    ]


def _is_convolving(module: nn.Module) -> bool:
    return (
        hasattr(module, "layer_idx")
        and any(isinstance(child, nn.Conv1d) for child in module.children())
        and "cache" in inspect.signature(type(module).forward).parameters
    )


@torch.inference_mode()
def sample_states(model: PreTrainedModel) -> dict[Key, Tensor]:
    """All states of one sequence, each [1, ...], found by computing tokens. Of the type that holds
    both what a chunk leaves behind and what a single token does behind it.

    Raises UnsupportedModelError where that fails.
    """
    hidden: int = model.config.get_text_config(decoder=True).hidden_size
    tokens = torch.zeros(1, 2, hidden, device=model.device, dtype=model.dtype)
    found: dict[Key, Tensor] = {}
    with _running_states_of(model):
        for module in find_mixers(model):
            mix, chunk = _mixer(module), CacheOfRows(NoStates(), 0)
            mix(tokens, chunk)
            single = CacheOfRows(GivenStates(chunk.written), 2)
            mix(tokens[:, :1], single)
            for key, state in (chunk.written | single.written).items():
                dtype = chunk.written.get(key, state).dtype
                found[key] = state.to(torch.promote_types(state.dtype, dtype))
    return found


def state_bytes(model: PreTrainedModel) -> int:
    """Bytes of all states of one sequence.

    Raises UnsupportedModelError as `sample_states` does.
    """
    return sum(state.nbytes for state in sample_states(model).values())


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a step that a layer computes at once, each with equally many tokens.

    part: of single tokens their indices in the batch [rows], else a slice of it.
    """

    part: Part
    slots: Tensor  # [2, rows], to read and to write
    n_before: int

    def compute(self, mix: Mixer, hidden: Tensor, pool: StatePool) -> Tensor:
        """[1, tokens, hidden] -> [rows, tokens, hidden]"""
        own = hidden[0, self.part.tokens].view(*self.part.shape, hidden.shape[-1])
        read = pool.rows(self.slots[0]) if self.n_before else NoStates()
        states = CacheOfRows(read, self.n_before)
        mixed = mix(own, states)
        pool.write(self.slots[1], states.written)
        return mixed


class RecurrentLayers:
    """The layers of one model that keep a state, and the states of all of its slots."""

    def __init__(self, model: PreTrainedModel, n_slots: int) -> None:
        """The model's layers belong to this object while it lives: a model that sleeps has no
        states.

        Raises UnsupportedModelError if a state does not do in the place of the tokens before it.
        """
        self._device = model.device
        self._pool = StatePool(n_slots)
        self._parts: list[_Rows] = []
        self._static_slots = torch.empty(2, 0, dtype=torch.int64)
        self.can_batch = True
        self._static_tokens: StaticTokenSlots | None = None  # where some mixer has a kernel
        self._tokens: TokenSlots | None = None  # of the step in progress, where kernels compute it
        kinds: dict[type[nn.Module], Callable[[Mixer], Mixer]] = {}
        for module in find_mixers(model):
            mix = _mixer(module)
            if type(module) not in kinds:
                kinds[type(module)] = _way_to_continue(mix, model)
                self.can_batch &= _can_batch(mix, model)
            if (net := delta_net(module)) is not None:
                self._static_tokens = self._static_tokens or StaticTokenSlots()
            self._wrap(module, kinds[type(module)](mix), _products(module, model), net)

    def host_states(self, sample: Mapping[Key, Tensor]) -> HostStates:
        """The states of all slots on a CPU, to be kept elsewhere, too. To be called before the
        first step, with what `sample_states` finds."""
        self._pool.prepare(sample)
        return HostStates(self._pool)

    @contextmanager
    def running(self, step: StepInputs) -> Iterator[None]:
        """While the block computes a step, each row has the states of its slots."""
        self._parts = self._parts_of(step)
        if self._static_tokens is not None:
            self._tokens = self._static_tokens.load(step)
        try:
            yield
        finally:
            self._parts, self._tokens = [], None

    def make_static(self, max_rows: int) -> None:
        """Takes the memory that steps of up to `max_rows` decodes read their slots from."""
        self._static_slots = torch.full((2, max_rows), self._pool.padding_slot).to(self._device)

    def load(self, slots: IntArray) -> bool:
        """Copies the slots [rows, 2] of decodes there. False for rows without a state."""
        if (slots[:, 0] == NO_STATE).any():
            return False
        padded = np.full(self._static_slots.shape, self._pool.padding_slot, dtype=np.int64)
        padded[:, : len(slots)] = slots.T
        self._static_slots.copy_(to_device(padded, self._device), non_blocking=True)
        return True

    @contextmanager
    def running_static(self, n: int) -> Iterator[None]:
        """Like `running`, for `n` decodes with the slots that `load` copies."""
        self._parts = [_Rows(Part(slice(None), (n, 1)), self._static_slots[:, :n], 1)]
        try:
            yield
        finally:
            self._parts = []

    def _parts_of(self, step: StepInputs) -> list[_Rows]:
        before, slots = step.total_len - step.new_len, step.state_slots.T
        is_drafted = (slots[2:] != NO_STATE).any(0)
        by_token = is_drafted | ((step.new_len == 1) & (before > 0) & self.can_batch)
        if by_token.all() and self.can_batch and not is_drafted.any():
            on_device = to_device(np.ascontiguousarray(slots[:2]), self._device)
            return [_Rows(Part(slice(None), (len(before), 1)), on_device, 1)]
        parts = self._parts_by_token(step, by_token.nonzero()[0])
        starts = step.new_len.cumsum() - step.new_len
        on_device = to_device(np.ascontiguousarray(slots[:2]).clip(min=0), self._device)
        for row in (~by_token).nonzero()[0].tolist():
            begin, n = int(starts[row]), int(step.new_len[row])
            own = on_device[:, row : row + 1]
            parts.append(_Rows(Part(slice(begin, begin + n), (1, n)), own, int(before[row])))
        return parts

    def _parts_by_token(self, step: StepInputs, rows: IntArray) -> list[_Rows]:
        """The first tokens of some rows, then the second ones, and so on: each reads the state
        behind the one before it."""
        starts, parts = step.new_len.cumsum() - step.new_len, list[_Rows]()
        before, n_new = step.total_len - step.new_len, step.new_len[rows]
        for nth in range(max(n_new, default=0)):
            left = rows[n_new > nth]
            read, written = _slots_of_token(step.state_slots[left], step.new_len[left], nth)
            columns = np.stack([starts[left] + nth, read, written, before[left] + nth])
            together = (read != NO_STATE) & self.can_batch
            own = [columns[:, row : row + 1] for row in (~together).nonzero()[0]]
            for part in (columns[:, together], *own) if together.any() else own:
                on_device = to_device(part[:3].clip(min=0), self._device)
                tokens, n_before = Part(on_device[0], (part.shape[1], 1)), int(part[3].max())
                parts.append(_Rows(tokens, on_device[1:], n_before))
        return parts

    def _wrap(
        self, module: nn.Module, mix: Mixer, products: MixerProducts, net: DeltaNet | None
    ) -> None:
        owner = weakref.ref(self)

        def by_rows(hidden_states: Tensor, *_: object, **__: object) -> Tensor:
            """[1, tokens, hidden] -> [1, tokens, hidden]"""
            layers = owner()
            if layers is None or not layers._parts:  # tokens whose state nobody needs
                return mix(hidden_states, CacheOfRows(NoStates(), 0))
            if net is not None and layers._tokens is not None:
                return net(hidden_states[0], layers._tokens, layers._pool)[None]
            return layers._mix(mix, hidden_states, products)

        # Attention returns its weights, too.
        is_pair = lightning.is_lightning(module)
        override(module, "forward", partial(_paired, by_rows) if is_pair else by_rows)

    def _mix(self, mix: Mixer, hidden: Tensor, products: MixerProducts) -> Tensor:
        """[1, tokens, hidden] -> [1, tokens, hidden]"""
        if len(self._parts) == 1:
            return self._parts[0].compute(mix, hidden, self._pool).flatten(0, 1)[None]
        with products.of_all(hidden):
            mixed = [
                products.part(rows.part, partial(rows.compute, mix, hidden, self._pool))
                for rows in self._parts
            ]
        out = mixed[0].new_empty(1, hidden.shape[1], mixed[0].shape[-1])
        for rows, own in zip(self._parts, mixed, strict=True):
            out[0, rows.part.tokens] = own
        return products.result(out)


def _slots_of_token(slots: IntArray, n_new: IntArray, nth: int) -> tuple[IntArray, IntArray]:
    """The slots [rows] that a token reads and writes, of rows with `n_new` tokens and
    StepInputs.state_slots."""
    read = slots[:, 1 + nth if nth else 0]
    inner = slots[:, min(2 + nth, slots.shape[1] - 1)]
    return read, np.where(n_new == nth + 1, slots[:, 1], inner)


def _paired(
    by_rows: Callable[..., Tensor], *inputs: Tensor, **named: Tensor
) -> tuple[Tensor, None]:
    return by_rows(*inputs, **named), None


def _mixer(module: nn.Module) -> Mixer:
    """A module as transformers has it, whatever was wrapped around it before."""
    if lightning.is_lightning(module):
        return partial(lightning.mix, module)
    forward = type(module).forward.__get__(module)

    def mix(hidden_states: Tensor, states: CacheOfRows) -> Tensor:
        mixed = forward(hidden_states, cache=states)
        if not isinstance(mixed, Tensor):
            raise UnsupportedModelError(f"{type(module).__name__} returns more than hidden states")
        return mixed

    return mix


def _products(module: nn.Module, model: PreTrainedModel) -> MixerProducts:
    def mix(x: Tensor) -> Tensor:
        return _mixer(module)(x, CacheOfRows(NoStates(), 0))

    with _running_states_of(model):
        return MixerProducts(module, mix, _tried(model))


def _running_states_of(model: PreTrainedModel) -> AbstractContextManager[None]:
    return unsupported_on_error(f"the engine can't run the states of {model.config.model_type}")


def _tried(model: PreTrainedModel) -> Tensor:
    """Hidden states to try a mixer with. [1, N_TRIED, hidden]"""
    hidden: int = model.config.get_text_config(decoder=True).hidden_size
    x = torch.randn(1, N_TRIED, hidden, generator=torch.Generator().manual_seed(0))
    return x.to(model.device, model.dtype)


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@torch.inference_mode()
def _way_to_continue(mix: Mixer, model: PreTrainedModel) -> Callable[[Mixer], Mixer]:
    """How a mixer goes on behind a state: with all tokens at once where it can.

    Some begin anew with each chunk, and read the state for single tokens alone. Raises
    UnsupportedModelError for one that does not go on at all.
    """
    x = _tried(model)
    with _running_states_of(model):
        whole = mix(x, CacheOfRows(NoStates(), 0))
        errors = {}
        for way in (_at_once, _by_token):
            first = CacheOfRows(NoStates(), 0)
            begun = way(mix)(x[:, :N_BEGUN], first)
            rest = CacheOfRows(GivenStates(first.written), N_BEGUN)
            found = torch.cat([begun, way(mix)(x[:, N_BEGUN:], rest)], 1)
            errors[way] = _error(found, whole)
        # A state that is left out may change less than half precision rounds.
        limit = min(MAX_ERROR[model.dtype], max(MIN_ERROR, TIMES_LEAST * min(errors.values())))
        if ways := [way for way, error in errors.items() if error <= limit]:
            return ways[0]
    raise UnsupportedModelError(f"{model.config.model_type} has states that nothing can follow")


@torch.inference_mode()
def _can_batch(mix: Mixer, model: PreTrainedModel) -> bool:
    """Whether single tokens behind states of different lengths can be computed at once."""
    x = _tried(model)
    lengths, begun, alone = (N_BEGUN, N_TRIED - 1), [], []
    try:
        for n in lengths:
            states = CacheOfRows(NoStates(), 0)
            mix(x[:, :n], states)
            begun.append(states.written)
            alone.append(mix(x[:, n : n + 1], CacheOfRows(GivenStates(states.written), n)))
        both = {key: torch.cat([states[key] for states in begun]) for key in begun[0]}
        tokens = torch.cat([x[:, n : n + 1] for n in lengths])
        together = mix(tokens, CacheOfRows(GivenStates(both), max(lengths)))
    except Exception as error:  # of any model's code
        log.warning("states of %s are computed row by row: %s", model.config.model_type, error)
        return False
    return _error(together, torch.cat(alone)) <= MAX_ERROR[model.dtype]


def _at_once(mix: Mixer) -> Mixer:
    return mix


def _by_token(mix: Mixer) -> Mixer:
    def one_by_one(hidden_states: Tensor, states: CacheOfRows) -> Tensor:
        if states.n_before == 0:
            return mix(hidden_states, states)
        parts, read = [], states.read
        for token in range(hidden_states.shape[1]):
            one = CacheOfRows(read, states.n_before + token)
            parts.append(mix(hidden_states[:, token : token + 1], one))
            read = GivenStates(one.written)
        states.written.update(one.written)
        return torch.cat(parts, 1)

    return one_by_one

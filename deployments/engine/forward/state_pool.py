"""The memory of recurrent states, and the form in which transformers' layers read and write it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import prod
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Key = tuple[str, int, int]  # kind of the state, layer, number of the state in the layer


class StateReader(Protocol):
    def get(self, key: Key) -> Tensor | None:
        """States [rows, ...] that the caller may change; None: there are none yet."""


class NoStates:
    """The states of sequences that have computed nothing."""

    def get(self, key: Key) -> None:
        return None


class GivenStates:
    """States in a mapping, which stay as they are; some models have objects of their own there."""

    def __init__(self, states: Mapping[Key, Tensor]) -> None:
        self._states = states

    def get(self, key: Key) -> Tensor | None:
        state = self._states.get(key)
        return state.clone() if isinstance(state, Tensor) else deepcopy(state)


class StatePool:
    """States by slot, each kind [n_slots + 1, ...]. The last slot is for padding rows.

    Memory for a kind of states is taken when one is first written; on a CPU that of a slot, when
    it is.
    """

    def __init__(self, n_slots: int) -> None:
        self.padding_slot = n_slots
        self._states: dict[Key, Tensor] = {}

    def prepare(self, states: Mapping[Key, Tensor]) -> None:
        """Takes the memory for all kinds of states, each [rows, ...], before one is written."""
        for key, state in states.items():
            self.memory(key, state.shape[1:], state.dtype, state.device)

    @property
    def kinds(self) -> Mapping[Key, Tensor]:
        """The states of all slots, [n_slots + 1, ...] of each kind."""
        return self._states

    def write(self, slots: Tensor, states: Mapping[Key, Tensor]) -> None:
        """`states` [rows, ...] of each kind go to `slots` [rows] int64."""
        for key, new in states.items():
            kept = self.memory(key, new.shape[1:], new.dtype, new.device)
            kept.index_copy_(0, slots, new.to(kept.dtype))

    def memory(
        self,
        key: Key,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device = torch.device("cpu"),  # noqa: B008
    ) -> Tensor:
        """All states of a kind, which are such ones."""
        if key not in self._states:
            self._states[key] = _empty_slots((self.padding_slot + 1, *shape), dtype, device)
        return self._states[key]

    def rows(self, slots: Tensor) -> "PoolRows":
        """The states in some slots [rows] int64."""
        return PoolRows(self._states, slots)


def _empty_slots(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """torch would touch all of it on a CPU."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    untouched = np.zeros(prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(untouched).view(dtype).view(shape)


class HostStates:
    """The slots of a pool on a CPU as bytes. All kinds of states that there will be are known."""

    def __init__(self, pool: StatePool) -> None:
        kinds = [pool.kinds[key] for key in sorted(pool.kinds)]
        self._slots = [kind.flatten(1).view(torch.uint8).numpy() for kind in kinds]
        self.parts = [(kind.dtype, kind[0].nbytes) for kind in kinds]

    def read(self, slot: int, state: NDArray[np.uint8]) -> None:
        """Copies the bytes of a slot to `state` [bytes]."""
        np.concatenate([kind[slot] for kind in self._slots], out=state)

    def write(self, slot: int, state: NDArray[np.uint8]) -> None:
        """Copies bytes to a slot that no step reads or writes."""
        begin = 0
        for kind in self._slots:
            kind[slot] = state[begin : begin + kind.shape[1]]
            begin += kind.shape[1]


class PoolRows:
    """The states of some slots of a pool."""

    def __init__(self, states: Mapping[Key, Tensor], slots: Tensor) -> None:
        self._states = states
        self._slots = slots

    def get(self, key: Key) -> Tensor | None:
        states = self._states.get(key)
        return None if states is None else states.index_select(0, self._slots)


class CacheOfRows:
    """States of some rows in the form of transformers' cache (`Cache` of its `cache_utils`)."""

    def __init__(self, read: StateReader, n_before: int) -> None:
        """`read` are the states behind the `n_before` first tokens of a row. Of several rows,
        `n_before` is above 0, and of none of them in particular."""
        self.read = read
        self.n_before = n_before
        self.written: dict[Key, Tensor] = {}

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """A copy, which the layer may change: it is the new state then."""
        return self._copied(("conv", layer_idx, state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._copied(("recurrent", layer_idx, state_idx))

    def update_conv_state(
        self,
        conv_states: Tensor,  # [rows, channels, tokens]
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: object,
    ) -> Tensor:
        """Returns the last inputs of the convolution and the new ones; keeps the last of these."""
        key = ("conv", layer_idx, state_idx)
        before = self.read.get(key)
        if before is None:
            size = conv_kernel_size or conv_states.shape[-1]
            full = F.pad(conv_states, (max(0, size - conv_states.shape[-1]), 0))
        else:
            size = before.shape[-1]
            full = torch.cat([before, conv_states], -1)
        self.written[key] = full[..., -size:].clone()
        return full

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: object
    ) -> Tensor:
        self.written["recurrent", layer_idx, state_idx] = recurrent_states
        return recurrent_states

    def has_previous_state(self, *_: object, **__: object) -> bool:
        return self.n_before > 0

    def is_recording_past(self, *_: object) -> bool:
        return False

    def get_seq_length(self, *_: object) -> int:
        return self.n_before

    def _copied(self, key: Key) -> Tensor | None:
        state = self.read.get(key)
        if state is not None:
            self.written[key] = state
        return state

"""Runs layers that keep a state, row by row: each row reads its own state and writes a new one.

The layers are transformers' own. They are given one row's part of the hidden states, and a cache
that holds this row's states alone.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.inputs import StepInputs
from kv.states import NO_STATE

Key = tuple[str, int, int]  # kind of the state, layer, number of the state in the layer
States = Mapping[Key, Tensor]  # of one sequence, behind one of its tokens

N_TRIED, N_BEGUN = 7, 3  # tokens that each kind of mixer is tried with, at once and in two parts
MAX_ERROR = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.02}  # relative, of these
MIN_ERROR, TIMES_LEAST = 1e-3, 3  # relative; of the way to go on that has the least error
NEEDED = (5, 23)  # the first transformers with the cache that `RowStates` stands in for


def can_keep_states() -> bool:
    """Whether the installed transformers is new enough for layers that keep a state."""
    return tuple(int(part) for part in transformers.__version__.split(".")[:2]) >= NEEDED


def find_mixers(model: PreTrainedModel) -> list[nn.Module]:
    """The modules of a model that keep a state: those with a convolution that take transformers'
    cache. No module where transformers is too old."""
    if not can_keep_states():
        return []
    return [
        module
        for module in model.modules()
        if hasattr(module, "layer_idx")
        and any(isinstance(child, nn.Conv1d) for child in module.children())
        and "cache" in inspect.signature(type(module).forward).parameters
    ]


class RowStates:
    """One row's states in the form of transformers' cache (`Cache` of its `cache_utils`)."""

    def __init__(self, read: States, n_before: int) -> None:
        """`read` are the states behind the row's first `n_before` tokens."""
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
        conv_states: Tensor,  # [1, channels, tokens]
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
        if (state := self.read.get(key)) is None:
            return None
        self.written[key] = state.clone()
        return self.written[key]


# hidden states [1, tokens, hidden] and the cache of one row -> [1, tokens, hidden]
Mixer = Callable[[Tensor, RowStates], Tensor]


class RecurrentLayers:
    """The layers of one model that keep a state, and the states of all of its slots."""

    def __init__(self, model: PreTrainedModel) -> None:
        """The model's layers belong to this object from now on.

        Raises UnsupportedModelError if a state does not do in the place of the tokens before it.
        """
        self._slots: dict[int, States] = {}
        self._rows: list[tuple[int, int, RowStates]] = []  # begin and end in the batch, states
        kinds: dict[type[nn.Module], Callable[[Mixer], Mixer]] = {}
        for module in find_mixers(model):
            mix = _mixer(module)
            if type(module) not in kinds:
                kinds[type(module)] = _way_to_continue(mix, model)
            self._wrap(module, kinds[type(module)](mix))

    @contextmanager
    def running(self, step: StepInputs) -> Iterator[None]:
        """While the block computes a step, each row has the states of its slots."""
        ends = step.new_len.cumsum().tolist()
        befores = (step.total_len - step.new_len).tolist()
        begins = [0, *ends[:-1]]
        rows = zip(begins, ends, befores, step.state_slots.tolist(), strict=True)
        for begin, end, before, (read, written) in rows:
            states = RowStates({} if read == NO_STATE else self._slots[read], before)
            self._rows.append((begin, end, states))
            self._slots[written] = states.written
        try:
            yield
        finally:
            self._rows = []

    def _wrap(self, module: nn.Module, mix: Mixer) -> None:
        def by_row(hidden_states: Tensor, *_: object, **__: object) -> Tensor:
            """[1, tokens, hidden] -> [1, tokens, hidden]"""
            if not self._rows:  # a token by itself, whose state nobody needs
                return mix(hidden_states, RowStates({}, 0))
            return torch.cat(
                [mix(hidden_states[:, begin:end], states) for begin, end, states in self._rows], 1
            )

        module.forward = by_row


def _mixer(module: nn.Module) -> Mixer:
    """A module as transformers has it, whatever was wrapped around it before."""
    forward = type(module).forward.__get__(module)

    def mix(hidden_states: Tensor, states: RowStates) -> Tensor:
        mixed = forward(hidden_states, cache=states)
        if not isinstance(mixed, Tensor):
            raise UnsupportedModelError(f"{type(module).__name__} returns more than hidden states")
        return mixed

    return mix


@torch.inference_mode()
def _way_to_continue(mix: Mixer, model: PreTrainedModel) -> Callable[[Mixer], Mixer]:
    """How a mixer goes on behind a state: with all tokens at once where it can.

    Some begin anew with each chunk, and read the state for single tokens alone. Raises
    UnsupportedModelError for one that does not go on at all.
    """
    hidden: int = model.config.get_text_config(decoder=True).hidden_size
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, N_TRIED, hidden, generator=generator).to(model.device, model.dtype)
    try:
        whole = mix(x, RowStates({}, 0)).float()
        errors = {}
        for way in (_at_once, _by_token):
            first = RowStates({}, 0)
            begun = way(mix)(x[:, :N_BEGUN], first)
            rest = way(mix)(x[:, N_BEGUN:], RowStates(first.written, N_BEGUN))
            difference = (torch.cat([begun, rest], 1).float() - whole).norm() / whole.norm()
            errors[way] = float(difference)
        # A state that is left out may change less than half precision rounds.
        limit = min(MAX_ERROR[model.dtype], max(MIN_ERROR, TIMES_LEAST * min(errors.values())))
        if ways := [way for way, error in errors.items() if error <= limit]:
            return ways[0]
    except Exception as error:  # of any model's code
        raise UnsupportedModelError(
            f"the engine can't run the states of {model.config.model_type}: {error}"
        ) from error
    raise UnsupportedModelError(f"{model.config.model_type} has states that nothing can follow")


def _at_once(mix: Mixer) -> Mixer:
    return mix


def _by_token(mix: Mixer) -> Mixer:
    def one_by_one(hidden_states: Tensor, states: RowStates) -> Tensor:
        if states.n_before == 0:
            return mix(hidden_states, states)
        parts, read = [], states.read
        for token in range(hidden_states.shape[1]):
            one = RowStates(read, states.n_before + token)
            parts.append(mix(hidden_states[:, token : token + 1], one))
            read = one.written
        states.written.update(read)
        return torch.cat(parts, 1)

    return one_by_one

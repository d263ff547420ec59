"""Finds out what a model that is run row by row keeps of a token, by a pass over a few tokens."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.by_rows import CACHE_NAMES, ByRows, Entry, RowPass, RowTokens
from deployments.engine.forward.state_pool import CacheOfRows, NoStates
from kv.arrays import IntArray
from kv.layout import NOTHING, LayerShape, Layout

STATE_NAMES = ("state", *CACHE_NAMES, "cache_params")  # of arguments and of what is returned
N_FEW = 3  # tokens
STATE_NUMBER_BYTES = 4  # of a model's own kind of state, whatever its parts are


class NotedRow:
    """The keys and values of one row without any before: they are noted, not stored."""

    def __init__(self) -> None:
        self.shapes: dict[Entry, LayerShape] = {}

    def extend(self, entry: Entry, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if entry in self.shapes:  # the second keys would overwrite the first
            raise UnsupportedModelError("it attends more than once in a layer")
        self.shapes[entry] = LayerShape(k.shape[0], max(k.shape[-1], v.shape[-1]))
        return k, v


def find_ways(model: PreTrainedModel, token_ids: IntArray) -> tuple[Sequence[ByRows], Layout]:
    """How the model may be run, the fastest way first, and what it stores.

    Raises UnsupportedModelError for one that keeps nothing in transformers' cache, or something
    else than the engine can.
    """
    ids = torch.from_numpy(token_ids).to(model.device)
    if (argument := _own_state(model, ids)) is not None:
        n_bytes = _size(_returned(model, ids, argument)) * STATE_NUMBER_BYTES
        own = ByRows({}, has_states=True, own_state=argument, state_bytes=n_bytes)
        ways = [replace(own, is_by_token=is_by_token) for is_by_token in (False, True)]
        return ways, (NOTHING,)
    noted, states = NotedRow(), CacheOfRows(NoStates(), 0)
    reason = f"{model.config.model_type} does not run with a cache of the engine's"
    with unsupported_on_error(reason):
        run = RowPass(model)
        run(RowTokens(ids), noted, states, [0])
        before = dict(_attribute_tensors(model))
        run(RowTokens(ids), NotedRow(), CacheOfRows(NoStates(), 0), [0])
    if not noted.shapes and not states.written:
        raise UnsupportedModelError(f"{type(model).__name__} keeps nothing in its cache")
    layers = {entry: layer for layer, entry in enumerate(noted.shapes)}
    after = _attribute_tensors(model)
    module_states = {where: state for where, state in after if before.get(where) is not state}
    n_bytes = sum(state.nbytes for state in states.written.values())
    plain = ByRows(layers, has_states=bool(states.written), state_bytes=n_bytes)
    ways = [replace(plain, is_by_token=is_by_token) for is_by_token in (False, True)]
    if module_states:
        n_bytes += sum(state.nbytes for state in module_states.values())
        ways.append(ByRows(layers, True, True, tuple(module_states), state_bytes=n_bytes))
    return ways, (*noted.shapes.values(),) or (NOTHING,)


def _attribute_tensors(model: PreTrainedModel) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Tensors that modules hold in plain attributes, by the names of both."""
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor):
                yield (name, attribute), value


def _own_state(model: PreTrainedModel, ids: Tensor) -> str | None:
    """The argument that takes a model's own kind of state. None: there is none, or it grows with
    the tokens, and so needs pages."""
    arguments = inspect.signature(type(model).forward).parameters
    for name in STATE_NAMES:
        if name not in arguments:
            continue
        sizes = {_size(_returned(model, ids[:n], name)) for n in (N_FEW, len(ids))}
        if len(sizes) == 1 and sizes != {0}:
            return name
    return None


def _returned(model: PreTrainedModel, ids: Tensor, name: str) -> object:
    try:
        return getattr(model(input_ids=ids[None], use_cache=True), name, None)
    except Exception:  # of any model's code: its own cache fails
        return None


def _size(state: object) -> int:
    """How many numbers there are in it."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, Mapping):
        return sum(map(_size, state.values()))
    if isinstance(state, list | tuple):
        return sum(map(_size, state))
    return _size(vars(state)) if hasattr(state, "__dict__") else 0

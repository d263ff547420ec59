"""A fused layer, or a plain model's linear layers, with what adapters add for the rows that have
one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.adapters.rows import AdapterRows
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.adapters.target import Target
from deployments.engine.forward.families import Family, Module
from deployments.engine.forward.layer import FusedLayer, activate
from deployments.engine.forward.linear import linear_add
from deployments.engine.kernels.rotary import RotaryEmbedding


class AdaptedLayer(FusedLayer):
    """A fused layer for steps in which some rows have an adapter."""

    def __init__(self, layer: Module, family: Family, slots: AdapterSlots) -> None:
        super().__init__(layer, family)
        stem = f"model.layers.{self._index}"
        self._slots = slots
        self._targets = (
            slots.targets[f"{stem}.self_attn.o_proj"],
            slots.targets[f"{stem}.mlp.down_proj"],
        )
        self._qkv = _Adapted(self._qkv, slots.targets[f"{stem}.self_attn.qkv_proj"], slots)
        self._swiglu = _AdaptedSwiglu(layer.mlp, slots.targets[f"{stem}.mlp.gate_up_proj"], slots)

    def __call__(self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        (attention_norm, mlp_norm), (o, down) = self._norms, self._targets
        rows = rows_of(self._slots)
        attended = self._attend(attention_norm(x), rotary, step)
        x = linear_add(self._o, attended, x)
        o.add_(x, attended, rows)
        activated = self._swiglu(mlp_norm(x))
        x = linear_add(self._down, activated, x)
        down.add_(x, activated, rows)
        return x


def rows_of(slots: AdapterSlots) -> AdapterRows:
    assert slots.rows is not None, "no step with adapters is in progress"
    return slots.rows


class _Adapted:
    """A linear layer whose result is changed in place."""

    def __init__(self, linear: Callable[[Tensor], Tensor], target: Target, slots: AdapterSlots):
        self._linear, self._target, self._slots = linear, target, slots

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out]"""
        out = self._linear(x)
        self._target.add_(out, x, rows_of(self._slots))
        return out


class _AdaptedSwiglu:
    """`silu(gate(x)) * up(x)`: [tokens, hidden] -> [tokens, intermediate]."""

    def __init__(self, mlp: Module, target: Target, slots: AdapterSlots) -> None:
        self._mlp, self._target, self._slots = mlp, target, slots

    def __call__(self, x: Tensor) -> Tensor:
        rows, mlp = rows_of(self._slots), self._mlp
        if hasattr(mlp, "gate_up_proj"):
            gate_up: Tensor = mlp.gate_up_proj(x)
            self._target.add_(gate_up, x, rows)
            return activate(gate_up)
        # What is added stands before the activation. So that is no epilogue of a packed product
        # here, and all rows of such a step are rounded before it, too: in half precision alone,
        # where what is beside a row may change its last bits anyway.
        return self._target.activate_(mlp.gate_proj(x), mlp.up_proj(x), x, rows)


class AdaptedModules:
    """The linear layers of a model that transformers runs, by hooks that are there in steps with
    adapters alone."""

    def __init__(self, model: PreTrainedModel, slots: AdapterSlots) -> None:
        self._slots = slots
        self._layers = [
            (model.get_submodule(name), partial(self._add, target))
            for name, target in slots.targets.items()
        ]

    @contextmanager
    def hooked(self) -> Iterator[None]:
        hooks = [module.register_forward_hook(add) for module, add in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _add(self, target: Target, _: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        x = given[0].reshape(-1, target.n_in)
        target.add_(out.view(len(x), -1), x, rows_of(self._slots))

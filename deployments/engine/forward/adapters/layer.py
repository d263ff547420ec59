"""A fused layer, or a plain model's linear layers, with what adapters add for the rows that have
one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.forward.adapters.rows import AdapterRows
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.adapters.target import Target
from deployments.engine.forward.fused.attention import SelfAttention
from deployments.engine.forward.fused.family import Family
from deployments.engine.forward.fused.feed_forward import SparseMlp, activate
from deployments.engine.forward.fused.fusing import activation_of, gated_mlps
from deployments.engine.forward.fused.layer import FusedLayer
from deployments.engine.forward.fused.residuals import PlainResidual, Residual
from deployments.engine.forward.module import Module


class AdaptedLayer(FusedLayer):
    """A fused layer for steps in which some rows have an adapter."""

    def __init__(
        self,
        layer: Module,
        name: str,
        family: Family,
        config: PretrainedConfig,
        slots: AdapterSlots,
    ) -> None:
        """`name` is the layer's in its model."""
        super().__init__(layer, family, config)
        targets, attention = slots.targets, self._attention
        if isinstance(attention, SelfAttention):
            attention.qkv = _Adapted(attention.qkv, targets[f"{name}.self_attn.qkv_proj"], slots)
            attention.residual = _AdaptedResidual(
                attention.residual, targets[f"{name}.self_attn.o_proj"], slots
            )
        mlp = family.mlp(layer)
        of_mlp = next(f"{name}.{own}" for own, child in layer.named_children() if child is mlp)
        gated = self._mlp.shared if isinstance(self._mlp, SparseMlp) else self._mlp
        for below, module in gated_mlps(mlp):
            assert gated is not None
            stem = f"{of_mlp}.{below}" if below else of_mlp
            gated.gate = _AdaptedGate(module, targets[f"{stem}.gate_up_proj"], slots)
            gated.residual = _AdaptedResidual(gated.residual, targets[f"{stem}.down_proj"], slots)


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


class _AdaptedResidual:
    """The residual of a linear layer's product, which adapters change."""

    def __init__(self, residual: Residual, target: Target, slots: AdapterSlots) -> None:
        self._residual, self._target, self._slots = residual, target, slots

    def product(self, linear: Module, x: Tensor, hidden: Tensor) -> Tensor:
        rows = rows_of(self._slots)
        if isinstance(self._residual, PlainResidual):  # an epilogue of the product
            hidden = self._residual.product(linear, x, hidden)
            self._target.add_(hidden, x, rows)
            return hidden
        value = linear(x)
        self._target.add_(value, x, rows)
        return self._residual.value(value, hidden)

    def value(self, value: Tensor, hidden: Tensor) -> Tensor:
        return self._residual.value(value, hidden)


class _AdaptedGate:
    """`activation(gate(x)) * up(x)`: [tokens, hidden] -> [tokens, intermediate]."""

    def __init__(self, mlp: Module, target: Target, slots: AdapterSlots) -> None:
        activation = activation_of(mlp)
        assert activation is not None, "it is not fused"
        self._mlp, self._target, self._slots, self._activation = mlp, target, slots, activation

    def __call__(self, x: Tensor) -> Tensor:
        rows, mlp = rows_of(self._slots), self._mlp
        if hasattr(mlp, "gate_up_proj"):
            gate_up: Tensor = mlp.gate_up_proj(x)
            self._target.add_(gate_up, x, rows)
            return activate(gate_up, self._activation)
        # What is added stands before the activation. So that is no epilogue of a packed product
        # here, and all rows of such a step are rounded before it, too: in half precision alone,
        # where what is beside a row may change its last bits anyway.
        gate, up = mlp.gate_proj(x), mlp.up_proj(x)
        return self._target.activate_(gate, up, x, rows, self._activation)


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

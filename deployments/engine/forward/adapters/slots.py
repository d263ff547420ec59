"""The adapters that the layers of one model have at hand, each in a slot of all matrices.

Rows of one step may have different slots, or none. What is in a slot is changed between steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise

import torch
from torch import nn
from transformers import PreTrainedModel

from deployments.adapter_files import ADAPTED, EXPERTS, AdapterInfo
from deployments.engine.forward.adapters.gpu_target import GpuTarget, padded_rank
from deployments.engine.forward.adapters.packed_target import PackedTarget, can_be_packed
from deployments.engine.forward.adapters.rows import AdapterRows, StaticRows
from deployments.engine.forward.adapters.target import LoraLayerWeights, Target
from deployments.engine.forward.fused.families import FAMILIES
from deployments.engine.forward.fused.fusing import gated_mlps, heads_of, is_fused, parts_of
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.module import Module
from deployments.engine.forward.recurrent import find_mixers
from deployments.engine.kernels.cpu.adapter_ops import empty_segments
from deployments.engine.kernels.cpu.dispatch import MAX_RECORDED_TOKENS

Matrices = Mapping[str, LoraLayerWeights]  # of one adapter, by the modules' names


class AdapterSlots:
    """Slots are numbered from 1. `step` says which rows of the step in progress have which."""

    def __init__(
        self,
        model: PreTrainedModel,
        n_slots: int,
        max_rank: int,
        own_name: Callable[[str], str] = str,
    ) -> None:
        """own_name: gives the name of a module in `model`, whichever an adapter has for it."""
        self.n_slots = n_slots
        self.max_rank = max_rank
        self.targets: dict[str, Target] = {}  # by the names of layers, joined ones as they are now
        self.rows: AdapterRows | None = None
        self._own_name = own_name
        self._device = model.device
        # Recorded calls read what a step's tokens have where the step before had it.
        few = MAX_RECORDED_TOKENS
        self._segments = empty_segments(few, n_slots, few)
        self._static: StaticRows | None = None  # of captured steps
        self._by_name: dict[str, tuple[Target, int]] = {}  # by modules' names: also the part
        like = torch.empty(0, dtype=model.dtype, device=model.device)
        for joined, parts, n_in, n_outs in _layers(model):
            target = self.targets[joined] = _target(n_in, n_outs, n_slots, max_rank, like)
            self._by_name |= {name: (target, part) for part, name in enumerate(parts)}
        for target, following in pairwise(self.targets.values()):
            if isinstance(target, PackedTarget) and isinstance(following, PackedTarget):
                target.fetch_ahead(following)

    def misfit(self, info: AdapterInfo) -> str:
        """Why an adapter is none for this model; "" if it is one."""
        for name, module in info.modules.items():
            found = self._by_name.get(self._own_name(name))
            if found is None:
                return f"{name}: {_refusal(name)}"
            target, part = found
            outs = target.outs[part]
            expected = outs.stop - outs.start, target.n_in
            if (module.n_out, module.n_in) != expected:
                given = module.n_out, module.n_in
                return f"{name}: made for weights of {given}, which are {expected}"
        if info.rank > self.max_rank:
            return f"it has rank {info.rank}, and max_lora_rank is {self.max_rank}"
        return ""

    @torch.inference_mode()
    def install(self, slot: int, adapters: Sequence[tuple[Matrices, float]]) -> None:
        """Puts adapters into a slot, each with a scale, in the place of what was there. They fit,
        and have no more than `max_rank` together."""
        for target in self.targets.values():
            target.clear(slot)
        for matrices, scale in adapters:
            for name, weights in matrices.items():
                target, part = self._by_name[self._own_name(name)]
                target.append(slot, part, weights, scale)

    @contextmanager
    def running(self, step: StepInputs) -> Iterator[None]:
        """The layers are computed for a step while the block runs."""
        self.rows = AdapterRows.from_step(step, self.n_slots, self._device, self._segments)
        try:
            yield
        finally:
            self.rows = None

    def make_static(self, max_tokens: int) -> None:
        """Takes the memory that captured steps of up to `max_tokens` tokens read their slots
        from."""
        self._static = StaticRows(self.n_slots, max_tokens, self._device)

    def load(self, step: StepInputs) -> None:
        """Copies the slots of a step there."""
        assert self._static is not None
        self._static.load(step)

    @contextmanager
    def running_static(self, n: int) -> Iterator[None]:
        """Like `running`, for a step of `n` tokens with the slots that `load` copies."""
        assert self._static is not None
        self.rows = self._static.view(n)
        try:
            yield
        finally:
            self.rows = None


def _target(
    n_in: int, n_outs: Sequence[int], n_slots: int, max_rank: int, like: torch.Tensor
) -> Target:
    if like.is_cuda:
        return GpuTarget(n_in, n_outs, n_slots, max_rank, like)
    if can_be_packed(n_in, like):
        return PackedTarget(n_in, n_outs, n_slots, max_rank)
    return Target(n_in, n_outs, n_slots, max_rank, like)


def adapter_bytes(model: PreTrainedModel, n_slots: int, max_rank: int) -> int:
    """Returns the bytes of the matrices that `AdapterSlots` has for a model."""
    if model.device.type == "cuda":
        max_rank = padded_rank(max_rank)
    numbers = (len(n_outs) * n_in + sum(n_outs) for _, _, n_in, n_outs in _layers(model))
    return n_slots * max_rank * model.dtype.itemsize * sum(numbers) if n_slots else 0


def _refusal(name: str) -> str:
    if EXPERTS in name.split("."):
        return "the layers of experts take no adapter"
    if name.rpartition(".")[2] in ADAPTED:
        return "the model has no such layer that takes an adapter"
    return "such layers take no adapter"


# name of a layer, names of the modules that it is made of, inputs, outputs of each of these
Layer = tuple[str, Sequence[str], int, Sequence[int]]


def _layers(model: PreTrainedModel) -> Iterator[Layer]:
    """The linear layers of a model that take adapters, in the order of a step."""
    if not is_fused(model):
        yield from _single_layers(model)
        return
    family = FAMILIES[type(model)]
    names = {module: name for name, module in model.named_modules()}
    for layer in model.model.layers:
        if family.mixer(layer) is None:
            attention, stem = layer.self_attn, names[layer.self_attn]
            qkv, n_kv = attention.qkv_proj, heads_of(attention)[1] * attention.head_dim
            n_outs = qkv.out_features - 2 * n_kv, n_kv, n_kv
            yield _joined(model, f"{stem}.", "qkv_proj", qkv.in_features, n_outs)
            yield _single(f"{stem}.o_proj", attention.o_proj)
        for _, mlp in gated_mlps(family.mlp(layer)):
            stem, width, n_in = names[mlp], mlp.down_proj.in_features, mlp.down_proj.out_features
            yield _joined(model, f"{stem}.", "gate_up_proj", n_in, (width, width))
            yield _single(f"{stem}.down_proj", mlp.down_proj)


def _joined(
    model: PreTrainedModel, stem: str, name: str, n_in: int, n_outs: Sequence[int]
) -> Layer:
    parts = [stem + part for part in parts_of(model, name)]
    return stem + name, parts, n_in, n_outs if len(parts) > 1 else (sum(n_outs),)


def _single(name: str, linear: Module) -> Layer:
    return name, [name], linear.in_features, (linear.out_features,)


def _single_layers(model: PreTrainedModel) -> Iterator[Layer]:
    mixers = set(chain.from_iterable(mixer.modules() for mixer in find_mixers(model)))
    for name, module in model.named_modules():
        *above, last = name.split(".")
        if last in ADAPTED and EXPERTS not in above and module not in mixers and is_linear(module):
            yield _single(name, module)


def is_linear(module: nn.Module) -> bool:
    return isinstance(getattr(module, "in_features", None), int)

"""Computes hidden states of token ids, by a Hugging Face model or by its fused form.

The fused form has the same weights. It multiplies them in fewer and larger operations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from inspect import signature
from itertools import zip_longest
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.attention.hf_hook import current_step
from deployments.engine.attention.interface import FusedStepAttention, StepAttention
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.adapters.layer import AdaptedLayer, AdaptedModules
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.cpu_recording import RecordedLayers
from deployments.engine.forward.fused.families import FAMILIES
from deployments.engine.forward.fused.family import NOT_ROTATED, ROTATED, Angles
from deployments.engine.forward.fused.fusing import is_fused, rotary_kinds
from deployments.engine.forward.fused.layer import FusedLayer, norm_of
from deployments.engine.forward.head import base_name
from deployments.engine.forward.input_vectors import InputVectors
from deployments.engine.forward.module import Module
from deployments.engine.forward.taps import LAST_NORM, NO_TAPS, Taps
from deployments.engine.kernels.rotary import (
    Rotaries,
    RotaryEmbedding,
    RotaryTable,
    no_rotation,
    rotary_embedding,
)
from deployments.engine.quantized.stored_weight import StoredWeight


class Compute(Protocol):
    """Computes a step."""

    def __call__(
        self,
        token_ids: Tensor,
        positions: Tensor,
        needed: Tensor,
        step: FusedStepAttention,
        vectors: InputVectors | None = None,
        /,
    ) -> Tensor:
        """token_ids [tokens], positions [tokens] or [3, tokens], needed [n]: indices of tokens."""
        ...


class Decoder(Compute, Protocol):
    """Returns the hidden states of needed tokens, behind the last norm. [n, hidden]"""

    def tapped(self, taps: Taps) -> AbstractContextManager[None]:
        """Within, the taps read what is computed. Raises UnsupportedModelError for a model whose
        layers can't be tapped."""
        ...


def decoder(
    model: PreTrainedModel, adapters: AdapterSlots | None = None, first_position: int = 0
) -> Decoder:
    """The decoder of a model: a fused one if the model was fused. With `adapters` a step's rows may
    have some. `first_position` is the position of a sequence's first token."""
    if is_fused(model):
        return FusedDecoder(model, adapters)
    return PlainDecoder(model, adapters, first_position)


class PlainDecoder:
    """The layers of a model as transformers runs them, with our attention."""

    def __init__(
        self,
        model: PreTrainedModel,
        adapters: AdapterSlots | None = None,
        first_position: int = 0,
    ) -> None:
        """Raises UnsupportedModelError as `base_name` does."""
        self._adapters = adapters
        self._adapted = None if adapters is None else AdaptedModules(model, adapters)
        self._base: Module = getattr(model, base_name(model))
        self._embed: Module = model.get_input_embeddings()
        self._current = current_step(model)
        self._first_position = first_position
        self._taps = NO_TAPS
        # Gemma's: embeddings that each layer has of its own. Gemma 4 has those of padding at
        # the positions of vectors.
        self._has_inputs_by_layer = hasattr(self._base, "embed_tokens_per_layer")
        self._pads_vectors = self._has_inputs_by_layer and takes_embeddings(self._base)
        self._pad_id: int = getattr(model.config, "pad_token_id", None) or 0

    def __call__(
        self,
        token_ids: Tensor,
        positions: Tensor,
        needed: Tensor,
        step: StepAttention,
        vectors: InputVectors | None = None,
    ) -> Tensor:
        if self._first_position:
            positions = positions + self._first_position
        with self._current.running(step), self._hooked():
            hidden: Tensor = self._base(
                **self._inputs(token_ids, vectors),
                position_ids=positions.unsqueeze(-2),
                use_cache=False,
            ).last_hidden_state[0]
        self._taps.read(LAST_NORM, hidden)
        return hidden.index_select(0, needed)

    @contextmanager
    def tapped(self, taps: Taps) -> Iterator[None]:
        found = self._base._modules.get("layers")
        layers = [*found] if isinstance(found, nn.ModuleList) else []
        if taps.layers and not layers:
            kind = self._base.config.model_type
            raise UnsupportedModelError(f"the layers of {kind} can't be tapped")
        with ExitStack() as hooks:
            for number in taps.layers.intersection(range(len(layers))):
                read = partial(_read, taps, number)
                hook = layers[number].register_forward_pre_hook(read, with_kwargs=True)
                hooks.callback(hook.remove)
            self._taps = taps
            hooks.callback(setattr, self, "_taps", NO_TAPS)
            yield

    def _inputs(self, token_ids: Tensor, vectors: InputVectors | None) -> dict[str, object]:
        if vectors is None:
            return {"input_ids": token_ids[None]}
        embedded: Tensor = self._embed(token_ids[None])
        further = vectors.put(embedded[0])
        inputs: dict[str, object] = {"inputs_embeds": embedded}
        if self._has_inputs_by_layer:
            inputs["per_layer_inputs"] = self._inputs_by_layer(token_ids, vectors, embedded)
        if further:
            is_there = torch.zeros_like(token_ids, dtype=torch.bool)
            inputs["visual_pos_masks"] = is_there.index_fill_(0, vectors.indices, True)[None]
            inputs["deepstack_visual_embeds"] = further
        return inputs

    def _inputs_by_layer(
        self, token_ids: Tensor, vectors: InputVectors, embedded: Tensor
    ) -> Tensor:
        found: Tensor
        if self._pads_vectors:
            text_ids = token_ids.index_fill(0, vectors.indices, self._pad_id)
            found = self._base.get_per_layer_inputs(text_ids[None], embedded)
        else:
            found = self._base.get_per_layer_inputs(token_ids[None])
        return found

    def _hooked(self) -> AbstractContextManager[None]:
        if self._adapted is None or self._adapters is None or self._adapters.rows is None:
            return nullcontext()
        return self._adapted.hooked()


def _read(
    taps: Taps, number: int, layer: Module, inputs: Sequence[object], named: Mapping[str, object]
) -> None:
    hidden = inputs[0] if inputs else named["hidden_states"]
    assert isinstance(hidden, Tensor)
    taps.read(number, hidden[0])


def takes_embeddings(base: Module) -> bool:
    return "inputs_embeds" in signature(base.get_per_layer_inputs).parameters


class FusedDecoder:
    """The layers of a fused model."""

    def __init__(self, model: PreTrainedModel, adapters: AdapterSlots | None = None) -> None:
        base: Module = model.model
        family = FAMILIES[type(model)]
        self._embed = embedding(model.get_input_embeddings())
        self._rotary, self._rotary_kinds = base.rotary_emb, rotary_kinds(model, family)
        self._tables: dict[str, RotaryTable] = {}  # by kind
        self._query_scale = partial(family.query_scale, model.config)
        self._family, self._factor = family, family.embedding_factor(model.config)
        norm = norm_of(family, base.norm)
        self._layers = RecordedLayers(
            [FusedLayer(layer, family, model.config) for layer in base.layers], norm
        )
        self._adapters = adapters
        self._adapted = self._layers
        self._taps = NO_TAPS
        if adapters is not None:
            names = {module: name for name, module in model.named_modules()}
            self._adapted = RecordedLayers(
                [
                    AdaptedLayer(layer, names[layer], family, model.config, adapters)
                    for layer in base.layers
                ],
                norm,
            )

    def __call__(
        self,
        token_ids: Tensor,
        positions: Tensor,
        needed: Tensor,
        step: FusedStepAttention,
        vectors: InputVectors | None = None,
    ) -> Tensor:
        x = self._embed(token_ids)
        further = () if vectors is None else vectors.put(x)
        if self._factor != 1:
            x = x * self._factor
        rotaries = {kind: self._rotary_at(kind, x, positions) for kind in self._rotary_kinds}
        if vectors is not None and further:
            x = self._run_each(x, rotaries, step, vectors.indices, further)
        else:
            x = self._run(x, rotaries, step)
        self._taps.read(LAST_NORM, x)
        return x.index_select(0, needed)

    def _rotary_at(self, kind: str, x: Tensor, positions: Tensor) -> RotaryEmbedding:
        """`positions` are as of `Compute`."""
        if kind == NOT_ROTATED:
            return no_rotation(x, self._scale_at(kind, x, positions.unsqueeze(-2)))
        if x.is_cuda or positions.dim() > 1:
            return self._rotary_of(kind, x, positions.unsqueeze(-2))
        if kind not in self._tables:  # some thirty operations of torch's make a rotary embedding
            like = x.new_empty(0, x.shape[1])
            self._tables[kind] = RotaryTable(partial(self._rotary_of, kind, like))
        return self._tables[kind].take(positions)

    def _rotary_of(self, kind: str, x: Tensor, positions: Tensor) -> RotaryEmbedding:
        of_layers = () if kind == ROTATED else (kind,)
        told = self._rotary(x, positions, *of_layers)
        if self._family.angles is Angles.COMPLEX:
            told = told.real, told.imag
        # Some models have them in float32 whatever their type.
        cos, sin = (_twice(part.to(x.dtype), self._family.angles) for part in told)
        scale = self._scale_at(kind, x, positions)
        return rotary_embedding(cos, sin, self._family.is_interleaved, scale)

    def _scale_at(self, kind: str, x: Tensor, positions: Tensor) -> Tensor | None:
        """The factor of queries at positions [1 or 3, tokens], in the type of `x`."""
        scale = self._query_scale(kind, positions)
        return None if scale is None else scale.to(x.dtype)

    @contextmanager
    def tapped(self, taps: Taps) -> Iterator[None]:
        self._taps = taps
        try:
            yield
        finally:
            self._taps = NO_TAPS

    def _run_each(
        self,
        x: Tensor,
        rotaries: Rotaries,
        step: FusedStepAttention,
        indices: Tensor,
        further: Sequence[Tensor],
    ) -> Tensor:
        """The layers, where something is read before them or added behind the first ones."""
        layers = self._layers_now()
        for number, (layer, vectors) in enumerate(zip_longest(layers.layers, further)):
            self._taps.read(number, x)
            x = layer(x, rotaries, step)
            if vectors is not None:
                x.index_add_(0, indices, vectors)
        assert layers.norm is not None
        return layers.norm(x)

    def _run(self, x: Tensor, rotaries: Rotaries, step: FusedStepAttention) -> Tensor:
        layers, taps = self._layers_now(), self._taps
        if (recorded := layers(x, rotaries, step, taps.layers)) is not None:
            x, read = recorded
            for number, hidden in read.items():
                taps.read(number, hidden)
            return x
        for number, layer in enumerate(layers.layers):
            taps.read(number, x)
            x = layer(x, rotaries, step)
        return x if layers.norm is None else layers.norm(x)

    def _layers_now(self) -> RecordedLayers:
        """Returns the layers with adapters if some row of the step in progress has one."""
        has_adapters = self._adapters is not None and self._adapters.rows is not None
        return self._adapted if has_adapters else self._layers


def _twice(told: Tensor, angles: Angles) -> Tensor:
    """Sines or cosines in the order of `Angles.TWICE`. [1, tokens, rotated]"""
    if angles is Angles.TWICE:
        return told
    once = told[..., ::2] if angles is Angles.IN_PAIRS else told
    return torch.cat([once, once], -1)


def embedding(module: Module) -> Callable[[Tensor], Tensor]:
    """Looks up the vectors of ids. [tokens] -> [tokens, hidden]"""
    weight = getattr(module, "weight", None)
    has_hooks = module._forward_hooks or module._forward_pre_hooks  # ranks share the rows
    if type(module) is nn.Embedding and isinstance(weight, StoredWeight) and not has_hooks:
        matrix, dtype = weight.whole_matrix, weight.dtype
        if matrix is not None and weight.device.type == "cpu":  # torch takes long to ask for it
            return lambda ids: matrix.numbers(ids, dtype)

    def look_up(ids: Tensor) -> Tensor:
        found: Tensor = module(ids[None])[0]  # with the batch dimension that transformers passes
        return found

    return look_up

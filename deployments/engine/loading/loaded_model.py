"""A model as the loader made it, with all that the loader found out about it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import nn
from transformers import PreTrainedModel

from deployments.engine.forward.cross_attention import alignment_heads
from deployments.engine.forward.execution import Execution
from deployments.engine.media.encoder import MediaEncoder
from deployments.engine.outputs.model_outputs import ModelOutputs
from deployments.engine.quantized.stored_weight import StoredWeight


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The parts of a model, in evaluation mode.

    model: the layers that the engine runs, and the head behind them.
    outputs: what the model answers with; by default what a generator does.
    media: encodes the images and sounds of prompts; None: the model reads text alone.
    speech: encodes the sounds that the model transcribes; None: it transcribes none.
    outer_names: how the names of the model's modules begin in adapters, each with a dot at its end,
        where it was a part of a larger model.
    """

    model: PreTrainedModel
    outputs: ModelOutputs = field(default_factory=ModelOutputs)
    media: MediaEncoder | None = None
    speech: nn.Module | None = None
    outer_names: tuple[str, ...] = ()

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def vocab_size(self) -> int:
        size: int = self.model.config.get_text_config(decoder=True).vocab_size
        return size

    @property
    def is_encoder(self) -> bool:
        return self.outputs.is_encoder

    @property
    def n_bytes(self) -> int:
        """Bytes of all weights."""
        tensors = (tensor for part in self.parts() for tensor in _tensors(part))
        # A stored weight is in the buffers of a product.
        return sum(tensor.nbytes for tensor in tensors if not isinstance(tensor, StoredWeight))

    def to(self, device: torch.device | str) -> Self:
        """Moves all parts to a device."""
        for part in self.parts():
            part.to(device)
        return self

    def own_name(self, name: str) -> str:
        """The name of a module in `model`, whichever an adapter has for it."""
        for outer in self.outer_names:
            if name.startswith(outer):
                return f"{self.model.base_model_prefix}.{name.removeprefix(outer)}"
        return name

    def outputs_by(self, execution: Execution) -> ModelOutputs:
        """The outputs of a model that is computed so. One that generates has vectors besides, but
        for the models whose hidden states nobody gets."""
        kinds = self.outputs.kinds
        if not kinds.can_generate:
            return self.outputs
        hidden: int = getattr(self.model.config.get_text_config(decoder=True), "hidden_size", 0)
        can_embed = bool(hidden) and execution.by_rows is None and self.speech is None
        size = (kinds.embedding_size or hidden) * can_embed
        return replace(
            self.outputs,
            kinds=replace(kinds, can_embed=can_embed, embedding_size=size),
            can_align=self.speech is not None and bool(alignment_heads(self.model)),
        )

    def parts(self) -> Iterator[nn.Module]:
        """All that has weights."""
        yield self.model
        yield from self.parts_beside()

    def parts_beside(self) -> Iterator[nn.Module]:
        """All that has weights beside `model`."""
        if self.outputs.dense is not None:
            yield self.outputs.dense
        if self.media is not None:
            yield self.media.module
        if self.speech is not None:
            yield self.speech


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()

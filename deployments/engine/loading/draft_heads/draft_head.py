"""Draft heads as they are loaded, and as they draft for a model."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

import torch
from torch import nn

from deployments.engine.forward.draft_heads.carried_states import CarriedStates
from deployments.engine.forward.draft_heads.headed import HeadForward, HeadParts
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from kv.layout import Layout
from kv.storage import Storage


class LoadedHead(ABC):
    """A draft head in evaluation mode, for the model that it was made for."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def parts(self) -> Iterator[nn.Module]:
        """All that has weights."""

    def to(self, device: torch.device | str) -> Self:
        """Moves all parts to a device."""
        for part in self.parts():
            part.to(device)
        return self

    @abstractmethod
    def checked(self, model: LoadedModel) -> "DraftHead":
        """The head as one that drafts for a model. Raises UnsupportedModelError for a model that it
        was not made for."""


class DraftHead(ABC):
    """A head that can draft for the model that it was checked for.

    tapped: the model's layers whose states it reads, LAST_NORM for what is behind them all.
    state_size: of the states that it reads.
    """

    loaded: LoadedHead
    tapped: tuple[int, ...]
    state_size: int

    @property
    @abstractmethod
    def layout(self) -> Layout: ...

    @abstractmethod
    def prepare(self, max_tokens: int) -> None:
        """Packs its weights for the processor, for sequences of up to `max_tokens` tokens."""

    @abstractmethod
    def forward(self, model: LoadedModel, storage: Storage) -> HeadForward:
        """Its forward pass. `storage` is of its layer alone."""

    def parts(self, model: LoadedModel, storage: Storage, limits: EngineLimits) -> HeadParts:
        """The head beside its model. Its layer is the last one of `storage`."""
        n = len(storage.layout)
        forward = self.forward(model, storage.part(n - len(self.layout), n))
        # The state before the first token of a step, and those of its tokens.
        window, kind = 2 + limits.draft_tokens, (self.loaded.dtype, self.loaded.device)
        carried = CarriedStates(limits.max_running, window, self.state_size, *kind)
        return HeadParts(forward, carried, self.tapped, storage)

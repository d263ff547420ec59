"""Computes logits of hidden states: the part of a model behind its layers."""

import copy
from collections.abc import Callable

from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.fused.families import family_of
from deployments.engine.forward.fused.fusing import is_fused
from deployments.engine.forward.module import Module

Head = Callable[[Tensor], Tensor]  # [n, hidden] -> logits [n, vocab]


def head(model: PreTrainedModel) -> Head:
    """The head of a model, which may be fused."""
    family = family_of(model)
    if is_fused(model) and family is not None and not family.changes_logits(model.config):
        matrix: Head = model.get_output_embeddings()
        return matrix
    return PlainHead(model)


class PlainHead:
    """The head as transformers computes it: it may scale or cap the logits of the last matrix.

    A copy of the model shares all of its modules but the layers. In their place it is given what
    they have computed.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Raises UnsupportedModelError as `base_name` does."""
        name = base_name(model)
        self._model: Module = copy.copy(model)
        self._model._modules = {**model._modules, name: _GivenStates(getattr(model, name))}

    def __call__(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model(inputs_embeds=hidden[None], use_cache=False).logits[0]
        return logits


class _GivenStates:
    """The replacement of a model's layers: its output is its input."""

    def __init__(self, base: Module) -> None:
        self._base = base

    def __call__(self, *_: object, inputs_embeds: Tensor, **__: object) -> "_Output":
        return _Output(inputs_embeds)

    @property
    def decoder(self) -> "_GivenStates":
        """The same object: some models' heads call a part of the layers by this name."""
        return self

    def __getattr__(self, name: str) -> object:
        return getattr(self._base, name)


class _Output:
    """The output of transformers' layers, with nothing but the last hidden states."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> Tensor:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


def base_name(model: PreTrainedModel) -> str:
    """The name of the module with a model's layers and its last norm.

    Raises UnsupportedModelError for a model that has none.
    """
    names: tuple[str, ...] = (model.base_model_prefix, "decoder")
    found = next((name for name in names if name in model._modules), None)
    if found is None:
        raise UnsupportedModelError(f"{type(model).__name__} has no module of all its layers")
    return found

"""The head of an encoder that classifies, as transformers computes it: from pooled hidden states to
the logits of its labels."""

import copy
from types import SimpleNamespace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.contract.outputs import Pooling
from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.encoder import alone
from kv.arrays import IntArray

MAX_DIFFERENCE = 1e-3  # of logits, relative, that is rounding


class LabelHead:
    """A copy of the model shares all modules but its layers. In their place it is given a prompt
    of one token, whose hidden states are the pooled ones."""

    def __init__(self, model: PreTrainedModel) -> None:
        name = model.base_model_prefix
        self._model = copy.copy(model)
        self._model._modules = {**model._modules, name: _PooledStates(getattr(model, name))}

    def __call__(self, pooled: Tensor) -> Tensor:
        """pooled [n, hidden]. Returns [n, labels]."""
        given = pooled.to(self._model.dtype)[:, None]
        logits: Tensor = self._model(inputs_embeds=given).logits
        return logits


class _PooledStates:
    """A stand-in for the layers: it returns its inputs, and what is pooled of these."""

    def __init__(self, base: object) -> None:
        self._base = base

    def __call__(self, *_: object, inputs_embeds: Tensor, **__: object) -> "_PooledOutput":
        pooler = getattr(self._base, "pooler", None)
        return _PooledOutput(inputs_embeds, None if pooler is None else pooler(inputs_embeds))

    def __getattr__(self, name: str) -> object:
        return getattr(self._base, name)


class _PooledOutput(SimpleNamespace):
    def __init__(self, states: Tensor, pooled: Tensor | None) -> None:
        super().__init__(last_hidden_state=states, pooler_output=pooled)

    def __getitem__(self, index: int) -> Tensor | None:
        found: Tensor | None = (self.last_hidden_state, self.pooler_output)[index]
        return found

    def __getattr__(self, name: str) -> None:
        return None


@torch.inference_mode()
def find_label_head(model: PreTrainedModel, row: IntArray) -> tuple[LabelHead, Pooling]:
    """The head, and the pooling that makes the logits that transformers has for a prompt.

    Raises UnsupportedModelError where no pooling does.
    """
    head = LabelHead(model)
    with unsupported_on_error(f"the head of {type(model).__name__} can't be computed by itself"):
        model.set_attn_implementation("eager")
        ids = torch.from_numpy(row)[None].to(model.device)
        expected = model(input_ids=ids).logits
        states = alone(model, row, 0, takes_types=False).float()
        pooled = {Pooling.CLS: states[0], Pooling.MEAN: states.mean(0), Pooling.LAST: states[-1]}
        for pooling, vector in pooled.items():
            difference = (head(vector[None]) - expected).norm() / expected.norm().clamp(min=1e-6)
            if bool(difference <= MAX_DIFFERENCE * (1 if model.dtype is torch.float32 else 50)):
                return head, pooling
    raise UnsupportedModelError(f"{type(model).__name__} reads more than one pooled vector")

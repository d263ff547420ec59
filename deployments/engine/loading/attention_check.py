"""Checks a model's use of attention by one forward pass, before the engine makes pages for it."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.interface import AttentionParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.decoder import PlainDecoder
from deployments.engine.forward.fusing import WINDOWS
from kv.cache import CacheShape


class ShapeCheckingAttention:
    """An attention backend that stores nothing. It checks the shapes of keys and values."""

    def __init__(self, model_type: str, shape: CacheShape) -> None:
        self._model_type = model_type
        self._kv_shape = [shape.n_kv_heads, shape.head_dim]
        self.attended_layers: set[int] = set()

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        params: AttentionParams,
    ) -> Tensor:
        """Returns the queries. Raises UnsupportedModelError for what the pages can't hold."""
        if layer in self.attended_layers:  # the second keys would overwrite the first
            raise UnsupportedModelError(f"{self._model_type} attends more than once in a layer")
        for tensor in (k, v):
            if (found := [*tensor.shape[1:]]) != self._kv_shape:
                raise UnsupportedModelError(
                    f"{self._model_type} has keys or values of {found} where its config says "
                    f"{self._kv_shape} [heads, dim]"
                )
        self.attended_layers.add(layer)
        return q.contiguous()


@torch.inference_mode()
def check_attention(model: PreTrainedModel, shape: CacheShape) -> None:
    """Computes one token. Where ranks share the model, all of them must call this together.

    Raises UnsupportedModelError if a layer does not attend exactly once, or if its keys and values
    do not have the shape of the cache.
    """
    if type(model) in WINDOWS:  # these architectures are known to attend as required
        return
    model_type: str = model.config.model_type
    attention = ShapeCheckingAttention(model_type, shape)
    token = torch.zeros(1, dtype=torch.int64, device=model.device)
    try:
        PlainDecoder(model)(token, token, token, attention)
    except (TypeError, AttributeError, LookupError) as error:
        raise UnsupportedModelError(
            f"{model_type} does not attend in a way that can be replaced: {error}"
        ) from error
    if attention.attended_layers != {*range(shape.n_layers)}:
        raise UnsupportedModelError(f"{model_type} has layers that do not attend")

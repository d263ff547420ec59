"""One forward pass before there are pages: whether a model attends as they need it."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.interface import AttentionParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.decoder import PlainDecoder
from deployments.engine.forward.fusing import WINDOWS
from kv.cache import CacheShape


class Trial:
    """A step of attention that stores nothing, and sees who would have stored what."""

    def __init__(self, kind: str, shape: CacheShape) -> None:
        self._kind = kind
        self._heads = [shape.n_kv_heads, shape.head_dim]
        self.layers: set[int] = set()

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        params: AttentionParams,
    ) -> Tensor:
        """Raises UnsupportedModelError for what the pages would not hold."""
        if layer in self.layers:  # the second would be written over the first
            raise UnsupportedModelError(f"{self._kind} attends more than once in a layer")
        for one in (k, v):
            if (found := [*one.shape[1:]]) != self._heads:
                raise UnsupportedModelError(
                    f"{self._kind} has keys or values of {found} where its config says "
                    f"{self._heads} [heads, dim]"
                )
        self.layers.add(layer)
        return q.contiguous()


@torch.inference_mode()
def try_attention(model: PreTrainedModel, shape: CacheShape) -> None:
    """Raises UnsupportedModelError. Every rank of a model has to do it at once."""
    if type(model) in WINDOWS:  # which are known
        return
    kind: str = model.config.model_type
    trial, token = Trial(kind, shape), torch.zeros(1, dtype=torch.int64, device=model.device)
    try:
        PlainDecoder(model)(token, token, token, trial)
    except (TypeError, AttributeError, LookupError) as error:
        raise UnsupportedModelError(
            f"{kind} does not attend in a way that can be replaced: {error}"
        ) from error
    if trial.layers != {*range(shape.n_layers)}:
        raise UnsupportedModelError(f"{kind} has layers that do not attend")

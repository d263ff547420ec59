"""The attention function that Hugging Face models call. It passes their tensors to a step."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from deployments.engine.attention.interface import AttentionParams, StepAttention
from deployments.engine.attention.latents import latent_heads
from deployments.engine.attention.selected import ChosenTokens
from deployments.engine.errors import UnsupportedModelError

UNMASKED = torch.empty(1, 1, 0, 0)  # in the place of a mask, for models that ask for one
# For a name that it knows no masks of, transformers builds none.
ATTN_IMPLEMENTATION = "manta"


class CurrentStep:
    """The step that a model computes now. All of its modules share this object.

    The attention function finds the step here: not every model hands on to its attention what it
    is called with.

    windows: of attention modules, as `loading.attention_check` found them; None: a module attends
        to all tokens. Some models tell their window to the mask alone.
    """

    def __init__(self) -> None:
        self.attention: StepAttention | None = None
        self.windows: WeakKeyDictionary[nn.Module, int | None] = WeakKeyDictionary()

    @contextmanager
    def running(self, attention: StepAttention) -> Iterator[None]:
        self.attention = attention
        try:
            yield
        finally:
            self.attention = None


_STEPS: WeakKeyDictionary[nn.Module, CurrentStep] = WeakKeyDictionary()


def current_step(model: nn.Module) -> CurrentStep:
    """The one of a model, which its modules have from the first call on."""
    current = _STEPS.get(model) or CurrentStep()
    _STEPS.update(dict.fromkeys(model.modules(), current))
    return current


def step_of(module: nn.Module) -> CurrentStep:
    """The one of the model that a module belongs to."""
    return _STEPS[module]


def paged_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_dim]
    key: Tensor,  # [1, kv_heads, tokens, head_dim], rotary embedding applied
    value: Tensor,  # [1, kv_heads, tokens, value_dim]
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: ChosenTokens | None = None,
    slopes: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The attention function that is registered with transformers. What it does not know was
    refused by `loading.attention_check`, or changes nothing.

    Returns [1, tokens, heads, value_dim]. Raises UnsupportedModelError for a layer that is not
    causal or has a mask of its own.
    """
    has_mask = attention_mask is not None and attention_mask is not UNMASKED
    if has_mask or getattr(module, "is_causal", True) is False:
        raise UnsupportedModelError(f"{type(module).__name__} attends by a mask of its own")
    current = step_of(module)
    assert current.attention is not None, "the model runs outside of a step"
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    heads = latent_heads(module)
    if heads is not None:
        query = heads.absorb(query)
    q, k, v = (given[0].transpose(0, 1) for given in (query, key, value))
    if heads is None:
        # Zeros change no product. A page has room for one width, of keys and of values.
        dim = max(key.shape[-1], value.shape[-1])
        q, k, v = (_padded(given, dim) for given in (q, k, v))
    window = current.windows.get(module, sliding_window)
    params = AttentionParams(scale, window, softcap, s_aux, slopes)
    found = current.attention.attend(layer, q, k, v, params)
    if indices is not None:
        indices.attend_into(found, layer, q, scale, s_aux)
    out = found[None, ..., : value.shape[-1]]
    return (out if heads is None else heads.expand(out)), None


def _padded(heads: Tensor, dim: int) -> Tensor:
    return heads if heads.shape[-1] == dim else F.pad(heads, (0, dim - heads.shape[-1]))


AttentionInterface.register(ATTN_IMPLEMENTATION, paged_attention)

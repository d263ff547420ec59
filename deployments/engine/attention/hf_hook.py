"""The attention function that Hugging Face models call. It passes their tensors to a step."""

from torch import Tensor, nn
from transformers import AttentionInterface

from deployments.engine.attention.interface import AttentionParams, StepAttention
from deployments.engine.errors import UnsupportedModelError

# For a name that it knows no masks of, transformers builds none.
ATTN_IMPLEMENTATION = "manta"
# An attention module's attribute: its window as `loading.attention_check` found it, or None. Some
# models tell their window to the mask alone.
WINDOW = "paged_window"


def paged_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_dim]
    key: Tensor,  # [1, kv_heads, tokens, head_dim], rotary embedding applied
    value: Tensor,  # [1, kv_heads, tokens, head_dim]
    attention_mask: Tensor | None,
    *,
    step: StepAttention,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The attention function that is registered with transformers. What it does not know was
    refused by `loading.attention_check`, or changes nothing.

    Returns [1, tokens, heads, head_dim]. Raises UnsupportedModelError for a layer that is not
    causal or has a mask of its own.
    """
    if attention_mask is not None or getattr(module, "is_causal", True) is False:
        raise UnsupportedModelError(f"{type(module).__name__} attends by a mask of its own")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    out = step.attend(
        layer,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        AttentionParams(scale, getattr(module, WINDOW, sliding_window), softcap, s_aux),
    )
    return out[None], None


AttentionInterface.register(ATTN_IMPLEMENTATION, paged_attention)

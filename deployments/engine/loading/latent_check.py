"""Finds the attention modules whose compressed keys and values can be stored as they are.

Each is proven on tokens of its own model: what it gives its attention must be what it made of
latents, and attention to the latents must give the same. Others store what each head sees.
"""

import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from deployments.engine.attention.latents import PROJECTION, LatentHeads, latent_heads
from deployments.engine.forward.head import base_name
from deployments.engine.forward.overriding import override, restore

log = logging.getLogger(__name__)

COMPARED_ATTN_IMPLEMENTATION = "manta_compare_latents"
EXPAND = "expand_kv"  # the method of transformers' modules that makes keys and values of latents
N_TOKENS = 8
MAX_ERROR = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}  # relative, of these


class Comparison:
    """A comparison of one attention module: by its heads' keys and values, and by latents."""

    def __init__(self, module: nn.Module, heads: LatentHeads) -> None:
        self.heads = heads
        self._expand: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = getattr(module, EXPAND)
        self._made: list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]] = []
        self._results: list[bool] = []

    def expand(self, latent: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor]:
        """Makes keys and values in the place of the module's own method, and notes them."""
        made = self._expand(latent, rotary)
        self._made.append(((latent, rotary), made))
        return made

    def note(self, query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
        """Compares with `out`, which is what heads make of the same query."""
        self._results.append(self._is_same(query, key, value, scale, out))

    @property
    def has_passed(self) -> bool:
        return len(self._made) == 1 and self._results == [True]

    def _is_same(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor
    ) -> bool:
        if len(self._made) != 1:
            return False
        latents, made = self._made[0]
        if key is not made[0] or value is not made[1]:
            return False
        keys, values = self.heads.shared(*latents)
        found = _causal_attention(self.heads.absorb(query), keys, values, scale)
        found = self.heads.expand(found.transpose(1, 2)).transpose(1, 2)
        error = (found.float() - out.float()).norm()
        return bool(error <= MAX_ERROR[out.dtype] * out.float().norm())  # also false for NaN


def _compared_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_dim]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Causal attention, whatever mask a model has: the same for both."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = _causal_attention(query, key, value, scale)
    comparison = _COMPARISONS.get(module)
    if comparison is not None:
        comparison.note(query, key, value, scale, out)
    return out.transpose(1, 2), None


AttentionInterface.register(COMPARED_ATTN_IMPLEMENTATION, _compared_attention)
_COMPARISONS: WeakKeyDictionary[nn.Module, Comparison] = WeakKeyDictionary()  # in progress


@torch.inference_mode()
def store_latents(model: PreTrainedModel) -> None:
    """Has each attention module that can do so store latents from here on.

    Where ranks share the model, all of them must call this together. The model's attention is to
    be chosen afterwards. A second call changes nothing.
    """
    comparisons = {
        module: Comparison(module, heads)
        for module in model.modules()
        if (heads := _heads_of(module)) is not None
    }
    if not comparisons:
        return
    for module, comparison in comparisons.items():
        _COMPARISONS[module] = comparison
        override(module, EXPAND, comparison.expand)
    try:
        model.set_attn_implementation(COMPARED_ATTN_IMPLEMENTATION)
        ids = torch.arange(N_TOKENS, device=model.device)[None]
        getattr(model, base_name(model))(input_ids=ids, position_ids=ids, use_cache=False)
    except Exception as error:  # of any model's code; whether it is served is found out elsewhere
        log.warning("latents of %s are not stored: %s", model.config.model_type, error)
        return
    finally:
        for module in comparisons:
            del _COMPARISONS[module]
            restore(module, EXPAND)
    for module, comparison in comparisons.items():
        if comparison.has_passed:
            module.register_module(PROJECTION, comparison.heads)
            override(module, EXPAND, comparison.heads.shared)
        else:
            log.warning("latents of %s are not what they seem", type(module).__name__)


def drop_latents(model: PreTrainedModel) -> None:
    """Undoes `store_latents`: the model is as transformers has it."""
    for module in [*model.modules()]:
        if (heads := latent_heads(module)) is not None:
            module.register_module(PROJECTION, heads.projection())
            restore(module, EXPAND)


def _heads_of(module: nn.Module) -> LatentHeads | None:
    """Returns the heads of a module that has the parts of such attention, and a plain matrix as its
    projection.

    None for other modules, and where heads see fewer numbers than a latent has.
    """
    sizes = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    rank, rotary_dim, key_dim, value_dim = (getattr(module, name, 0) for name in sizes)
    projection = getattr(module, PROJECTION, None)
    if not (rank and hasattr(module, EXPAND) and type(projection) is nn.Linear):
        return None
    is_plain = type(projection.weight.data) is Tensor and projection.bias is None
    if not is_plain or projection._forward_hooks or projection._forward_pre_hooks:
        return None
    rows, columns = projection.weight.shape  # they may be one rank's share
    n_heads, rest = divmod(rows, key_dim + value_dim)
    stored = 2 * n_heads * max(key_dim + rotary_dim, value_dim)
    if rest or columns != rank or stored <= rank + rotary_dim:
        return None
    return LatentHeads(projection.weight, key_dim, value_dim)


def _causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[1, heads, tokens, value_dim], in float32 between the two products."""
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
    scores = (query.float() @ key.float().transpose(2, 3)) * scale
    future = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    return (weights @ value.float()).to(value.dtype)

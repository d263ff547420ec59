"""Finds out what a model's layers store, by one forward pass before the engine makes pages for it.

What a token attends to is read out of the masks that transformers would build.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from deployments.engine.attention.hf_hook import (
    ATTN_IMPLEMENTATION,
    current_step,
    paged_attention,
    step_of,
)
from deployments.engine.attention.interface import AttentionParams
from deployments.engine.attention.selected import ChosenTokens
from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.attentions.by_distance import drop_distances, use_distances
from deployments.engine.forward.attentions.indexed import drop_indexers, use_indexers
from deployments.engine.forward.by_rows import attention_of_rows
from deployments.engine.forward.decoder import PlainDecoder
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.fused.families import FAMILIES, family_of
from deployments.engine.forward.fused.family import QKV
from deployments.engine.forward.fused.fusing import attentions, heads_of, is_fused
from deployments.engine.forward.module import Module
from deployments.engine.forward.overriding import restore
from deployments.engine.forward.recurrent import NEEDED, can_keep_states, find_mixers
from deployments.engine.loading.checks import STATELESS_LAYER_TYPES, check_computable_at_once
from deployments.engine.loading.latent_check import drop_latents, store_latents
from deployments.engine.loading.rows_check import find_ways
from deployments.engine.loading.trial import N_TOKENS, Trial
from deployments.engine.out_of_memory import is_out_of_memory
from kv.layout import NOTHING, LayerShape, Layout

log = logging.getLogger(__name__)

CHECKED_ATTN_IMPLEMENTATION = "manta_check"
MAX_CHECKED_TOKENS = 1 << 20  # a longer context is read so far
# Arguments of attention that change nothing in evaluation mode, or say what `step` says.
IGNORED_ARGUMENTS = frozenset(
    {
        *("dropout", "training", "is_causal", "position_ids", "cache_position", "cache"),
        *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"),
        *("use_cache", "output_attentions", "output_hidden_states", "output_router_logits"),
        *("return_dict", "logits_to_keep"),
    }
)

# batch, head, query and key indices, which broadcast -> whether the query attends to the key
MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class TrialAttention:
    """An attention backend that stores nothing. It notes what it would have to store."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config(decoder=True)
        self._model_type: str = model.config.model_type
        longest: int = getattr(config, "max_position_embeddings", None) or MAX_CHECKED_TOKENS
        self._n_tokens = min(longest, MAX_CHECKED_TOKENS)
        self._windows: dict[Tensor, int | None] = {}  # by mask
        self.shapes: dict[int, LayerShape] = {}  # by layer

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        params: AttentionParams,
    ) -> Tensor:
        """Returns the queries. Raises UnsupportedModelError for what pages can't hold."""
        if layer in self.shapes:  # the second keys would overwrite the first
            raise UnsupportedModelError(f"{self._model_type} attends more than once in a layer")
        self.store(layer, k, v, params.window)
        return q.contiguous()

    def store(self, layer: int, k: Tensor, v: Tensor, window: int | None = None) -> None:
        """Notes what would be stored."""
        value_dim = v.shape[2] if v.data_ptr() == k.data_ptr() else None
        self.shapes[layer] = LayerShape(k.shape[1], k.shape[2], window, value_dim)

    def window(self, module: nn.Module, mask: Tensor | None, told: int | None) -> int | None:
        """How many tokens a token attends to, itself included; None: all. `told` is what attention
        is told, `mask` what transformers would mask by.

        Raises UnsupportedModelError for other masks, and where the two differ.
        """
        told = self._within_context(told)
        if mask is None:
            return told
        if not hasattr(mask, "mask_function"):
            raise UnsupportedModelError(f"{type(module).__name__} attends by a mask of its own")
        if mask not in self._windows:
            self._windows[mask] = self._within_context(
                read_window(mask.mask_function, self._n_tokens, mask.device, self._model_type)
            )
        window = self._windows[mask]
        if told not in (None, window):
            raise UnsupportedModelError(
                f"{self._model_type} tells its attention of a window of {told} tokens, "
                f"and its mask has {'none' if window is None else window}"
            )
        return window

    def _within_context(self, window: int | None) -> int | None:
        return None if window is None or window >= self._n_tokens else window


def read_window(
    mask_function: MaskFunction, n_tokens: int, device: torch.device, model_type: str
) -> int | None:
    """The window of a mask over `n_tokens` tokens; None where each attends to all before it.

    Raises UnsupportedModelError for a mask that is no window, as one of chunks or one that is not
    causal.
    """
    queries = {0, 1, n_tokens // 3, n_tokens // 2, n_tokens - 2, n_tokens - 1}
    q = torch.tensor(sorted(i for i in queries if 0 <= i < n_tokens), device=device)
    k = torch.arange(n_tokens + 1, device=device)
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=device)
    try:
        with _OneForAll():
            allowed = mask_function(zero, zero, q[:, None], k)
        allowed = allowed.expand(1, 1, len(q), len(k))[0, 0]
    except Exception as error:  # the function is of any model's code, for indices of other kinds
        raise UnsupportedModelError(f"{model_type} has a mask that can't be read") from error
    window = int(allowed[-1].sum())
    expected = (k <= q[:, None]) & (k > q[:, None] - window)
    if not torch.equal(allowed, expected):
        kind = "is not causal" if allowed[k > q[:, None]].any() else "is no window, as of chunks"
        raise UnsupportedModelError(f"{model_type} has a mask that {kind}")
    return None if window == n_tokens else window


class _OneForAll(TorchFunctionMode):
    """A mode where what a mask looks up by the trial's single token holds for all other tokens: a
    model that is told of text alone takes all for text."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__getitem__ and isinstance(args[1], tuple):
            of, index = args
            if all(isinstance(at, Tensor) for at in index):
                sizes = of.shape[: len(index)]
                looked_up = zip(index, sizes, strict=True)
                args = of, tuple(at * 0 if size == 1 else at for at, size in looked_up)
        return func(*args, **kwargs or {})


def _keep_mask_function(
    q_length: int, kv_length: int, mask_function: MaskFunction, device: torch.device, **_: object
) -> Tensor:
    """Makes a tensor that takes the place of a mask, and keeps how the mask is made.

    It has that as an attribute: the tensor is all that a model hands on to its attention.
    """
    mask = torch.ones(1, 1, q_length, kv_length, dtype=torch.bool, device=device)
    mask.mask_function = mask_function  # type: ignore[attr-defined]
    return mask


def _checked_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    indices: ChosenTokens | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """Attends as `paged_attention` does, which has the window from here on. Raises
    UnsupportedModelError for arguments that are unknown there."""
    unknown = {name for name, given in others.items() if given is not None} - IGNORED_ARGUMENTS
    if unknown:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends by {', '.join(sorted(unknown))}, "
            "which the engine does not know"
        )
    if is_causal is False:
        raise UnsupportedModelError(f"{type(module).__name__} is not causal")
    current = step_of(module)
    trial = current.attention
    assert isinstance(trial, TrialAttention), "attention is checked before a model is served"
    current.windows[module] = trial.window(module, attention_mask, sliding_window)
    return paged_attention(
        *(module, query, key, value, None),
        scaling=scaling,
        softcap=softcap,
        s_aux=s_aux,
        indices=indices,
    )


AttentionInterface.register(CHECKED_ATTN_IMPLEMENTATION, _checked_attention)
AttentionMaskInterface.register(CHECKED_ATTN_IMPLEMENTATION, _keep_mask_function)


@torch.inference_mode()
def find_decoding(model: PreTrainedModel) -> Execution:
    """Returns how a decoder is computed, found by computing some tokens. Where ranks share the
    model, all of them must call this together. The model's attention is the engine's afterwards.

    Raises UnsupportedModelError for a model that the engine does not compute as transformers does,
    neither with all rows at once nor row by row.
    """
    if _is_known(model):
        layout = _layout_of_family(model)
        return Execution(layout, has_recurrent_layers=NOTHING in layout)
    _drop_changes(model)
    try:
        return _at_once(model)
    except UnsupportedModelError as error:
        if isinstance(error.__cause__, Exception) and is_out_of_memory(error.__cause__):
            raise  # this says nothing of its attention
        reason = error
    _drop_changes(model)
    try:
        found = _row_by_row(model)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{reason}; row by row: {error}") from error
    log.warning("run row by row, which is slower: %s", reason)
    return found


def _drop_changes(model: PreTrainedModel) -> None:
    """The model is as transformers has it."""
    drop_latents(model)
    drop_indexers(model)
    drop_distances(model)


def _at_once(model: PreTrainedModel) -> Execution:
    """All rows of a step are computed at once, with the engine's attention."""
    check_computable_at_once(model.config)
    trial = Trial(model, "eager")
    use_indexers(model)
    use_distances(model)
    store_latents(model)
    attention = TrialAttention(model)
    token = torch.zeros(1, dtype=torch.int64, device=model.device)
    reason = f"{model.config.model_type} does not attend in a way that can be replaced"
    try:
        model.set_attn_implementation(CHECKED_ATTN_IMPLEMENTATION)
        with unsupported_on_error(reason):
            PlainDecoder(model)(token, token, token, attention)
    finally:
        model.set_attn_implementation(ATTN_IMPLEMENTATION)
    layout = _noted_layout(model, attention)
    keeps_states = bool(find_mixers(model))
    ways = [Execution(layout, first, keeps_states) for first in _first_positions(model)]
    return _first_right(ways, trial)


def _first_positions(model: PreTrainedModel) -> list[int]:
    """Returns positions that a first token may have. Some models count on from that of padding."""
    config = model.config.get_text_config(decoder=True)
    padding: int | None = getattr(config, "pad_token_id", None)
    n_positions: int = getattr(config, "max_position_embeddings", None) or 0
    if padding is None or not 0 <= padding < n_positions - N_TOKENS:
        return [0]
    return [0, padding + 1]


def _noted_layout(model: PreTrainedModel, attention: TrialAttention) -> Layout:
    config = model.config.get_text_config(decoder=True)
    types = getattr(config, "layer_types", None) or [""] * config.num_hidden_layers
    mixed = {module.layer_idx for module in find_mixers(model)}
    layout = []
    for layer, layer_type in enumerate(types):
        is_known = layer in attention.shapes or layer in mixed
        if not is_known and layer_type not in STATELESS_LAYER_TYPES:
            raise UnsupportedModelError(
                f"{model.config.model_type} has layers that {_why_unknown()}"
            )
        layout.append(attention.shapes.get(layer, NOTHING))
    further = sorted(attention.shapes.keys() - {*range(len(layout))})  # of indexers
    return tuple(layout) + tuple(attention.shapes[layer] for layer in further)


def _row_by_row(model: PreTrainedModel) -> Execution:
    """Transformers runs the model row by row: its cache is the pages."""
    for module in find_mixers(model):
        restore(module, "forward")  # as it is, for rows one after the other
    trial = Trial(model, attention_of_rows(model))
    ways, layout = find_ways(model, trial.rows[0])
    return _first_right([Execution(layout, by_rows=way) for way in ways], trial)


def _first_right(executions: Sequence[Execution], trial: Trial) -> Execution:
    """Returns the first that passes the trial. Raises UnsupportedModelError where none does."""
    reasons = []
    for execution in executions:
        try:
            trial.check(execution)
            return execution
        except UnsupportedModelError as error:
            reasons.append(error)
    raise reasons[0]


def _why_unknown() -> str:
    if can_keep_states():
        return "neither attend nor keep a state as transformers' cache has it"
    needed = ".".join(map(str, NEEDED))
    return f"do not attend: those that keep a state need transformers {needed} or newer"


def _is_known(model: PreTrainedModel) -> bool:
    """Whether its attention is that of its family: a configuration may have it see later tokens."""
    return family_of(model) is not None and all(
        attention.is_causal for attention in attentions(model)
    )


def _layout_of_family(model: PreTrainedModel) -> Layout:
    """Returns the layout of a model whose layers are known. A fused one can't be run by
    transformers any more."""
    config = model.config
    head_dim: int = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    attention = attentions(model)[0]
    family = FAMILIES[type(model)]
    if is_fused(model):
        kv_heads = heads_of(attention)[1]
    elif QKV in family.joined or attention.k_proj._forward_hooks:  # which gather those of all ranks
        kv_heads = config.num_key_value_heads
    else:  # it may be one rank's share, too
        kv_heads = attention.k_proj.weight.shape[0] // head_dim
    layers: Sequence[Module] = model.model.layers
    layout = [NOTHING] * len(layers)
    for number, layer in enumerate(layers):
        if family.mixer(layer) is None:
            window = family.window(layer.self_attn)
            current_step(model).windows[layer.self_attn] = window
            tumbles = family.has_tumbling_windows and window is not None
            layout[number] = LayerShape(kv_heads, head_dim, window, is_tumbling=tumbles)
    return tuple(layout)

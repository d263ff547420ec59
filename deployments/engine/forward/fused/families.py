"""The table of families that have a fused form: the parts in which their layers differ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from transformers import (
    CwmForCausalLM,
    Exaone4ForCausalLM,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    GemmaForCausalLM,
    GraniteForCausalLM,
    LlamaForCausalLM,
    MinistralForCausalLM,
    MistralForCausalLM,
    Phi3ForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SeedOssForCausalLM,
    SmolLM3ForCausalLM,
)

from deployments.engine.forward.module import Module

ROTATED, NOT_ROTATED = "", "not rotated"  # by the model's only rotary embedding, and by none


class NormNames(NamedTuple):
    """The RMSNorms of a layer, before and behind its attention and its feed-forward. None: the
    layer has no norm there."""

    before_attention: str | None
    behind_attention: str | None
    before_mlp: str | None
    behind_mlp: str | None


BEFORE = NormNames("input_layernorm", None, "post_attention_layernorm", None)
BEHIND = NormNames(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
BOTH = NormNames(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def _none(attention: Module) -> None:
    return None


def _window(attention: Module) -> int | None:
    window: int | None = attention.sliding_window
    return window


def _head_norms(attention: Module) -> tuple[Module, Module]:
    return attention.q_norm, attention.k_norm


@dataclass(frozen=True, slots=True)
class Family:
    """Layers of attention and a gated feed-forward, with RMSNorms. The functions read an attention
    layer, or a configuration.

    model_class: without its subclasses, which may compute something else under the same names.
    window: its sliding window, in tokens; None: it attends to all.
    head_norms: its norms of queries and of keys, each over one head.
    rotary: the layer type for which the model's rotary embedding is asked, ROTATED or NOT_ROTATED.
    softcap: the bound of its scores.
    norm_plus: what norms add to their weights.
    residual_factor: of what layers add to the hidden states.
    embedding_factor: of the embeddings, behind that of the model's embedding layer.
    changes_logits: whether something follows the last matrix.
    is_joined: whether projections that read the same input are joined in the checkpoint.
    """

    model_class: type[PreTrainedModel]
    window: Callable[[Module], int | None] = _none
    head_norms: Callable[[Module], tuple[Module, Module] | None] = _none
    rotary: Callable[[Module], str] = lambda attention: ROTATED
    softcap: Callable[[Module], float | None] = _none
    norms: NormNames = BEFORE
    norm_plus: float = 0.0
    residual_factor: Callable[[PretrainedConfig], float] = lambda config: 1.0
    embedding_factor: Callable[[PretrainedConfig], float] = lambda config: 1.0
    changes_logits: Callable[[PretrainedConfig], bool] = lambda config: False
    is_joined: bool = False


def _caps_logits(config: PretrainedConfig) -> bool:
    return config.final_logit_softcapping is not None


_FAMILIES = (
    # Llama, and all that has its layers under its name.
    Family(LlamaForCausalLM),
    # Seed-OSS: biases.
    Family(SeedOssForCausalLM),
    # Mistral: one window for all layers, or none. Ministral, CWM: some layers have windows.
    Family(MistralForCausalLM, window=lambda attention: attention.config.sliding_window),
    Family(MinistralForCausalLM, window=_window),
    Family(CwmForCausalLM, window=_window),
    # Phi 3 and 4: projections are joined in the checkpoint, and a part of each head is rotated.
    Family(
        Phi3ForCausalLM,
        window=lambda attention: attention.config.sliding_window,
        is_joined=True,
    ),
    # SmolLM 3: some layers know no positions.
    Family(
        SmolLM3ForCausalLM,
        window=_window,
        rotary=lambda attention: ROTATED if attention.use_rope else NOT_ROTATED,
    ),
    # Qwen 2 and 2.5: biases on queries, keys and values; the upper layers may have windows.
    Family(Qwen2ForCausalLM, window=_window),
    # Qwen 3: queries and keys are normed; the upper layers may have windows, but not those of
    # Qwen 3 VL.
    Family(
        Qwen3ForCausalLM,
        window=lambda attention: getattr(attention, "sliding_window", None),
        head_norms=_head_norms,
    ),
    # Exaone 4: norms behind each part; where some layers have windows the others know no positions.
    Family(
        Exaone4ForCausalLM,
        window=lambda attention: attention.sliding_window if attention.is_sliding else None,
        head_norms=_head_norms,
        rotary=lambda attention: (
            NOT_ROTATED if attention.sliding_window and not attention.is_sliding else ROTATED
        ),
        norms=BEHIND,
    ),
    # Granite: factors of scores, of what is added, of embeddings and of logits.
    Family(
        GraniteForCausalLM,
        residual_factor=lambda config: config.residual_multiplier,
        embedding_factor=lambda config: config.embedding_multiplier,
        changes_logits=lambda config: True,
    ),
    # Gemma: norms hold weights less 1.
    Family(GemmaForCausalLM, norm_plus=1.0),
    # Gemma 2: norms on both sides, every second layer has a window, scores and logits have bounds.
    Family(
        Gemma2ForCausalLM,
        window=_window,
        softcap=lambda attention: attention.attn_logit_softcapping,
        norms=BOTH,
        norm_plus=1.0,
        changes_logits=_caps_logits,
    ),
    # Gemma 3: queries and keys are normed; layers with windows have another rotary embedding.
    Family(
        Gemma3ForCausalLM,
        window=_window,
        head_norms=_head_norms,
        rotary=lambda attention: attention.layer_type,
        norms=BOTH,
        norm_plus=1.0,
        changes_logits=_caps_logits,
    ),
)
FAMILIES = {family.model_class: family for family in _FAMILIES}
_CONFIGS = frozenset(model_class.config_class for model_class in FAMILIES)


def family_of(model: PreTrainedModel) -> Family | None:
    """The family of a model; None: it has no fused form."""
    return FAMILIES.get(type(model))


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models with such a config have a fused form, unless their parts are unusual."""
    return type(config) in _CONFIGS

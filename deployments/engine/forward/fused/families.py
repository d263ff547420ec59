"""The table of families that have a fused form: the parts in which their layers differ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from transformers import (
    CwmForCausalLM,
    Dots1ForCausalLM,
    Exaone4ForCausalLM,
    ExaoneMoeForCausalLM,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    GemmaForCausalLM,
    Glm4MoeForCausalLM,
    GptOssForCausalLM,
    GraniteForCausalLM,
    GraniteMoeForCausalLM,
    LlamaForCausalLM,
    MinistralForCausalLM,
    MistralForCausalLM,
    MixtralForCausalLM,
    Phi3ForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen2MoeForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3ForCausalLM,
    Qwen3MoeForCausalLM,
    Qwen3NextForCausalLM,
    SeedOssForCausalLM,
    SmolLM3ForCausalLM,
    SolarOpenForCausalLM,
)

from deployments.engine.forward import recurrent
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


def _window_of_sliding(attention: Module) -> int | None:
    return _window(attention) if attention.is_sliding else None


def _rotary_of_sliding(attention: Module) -> str:
    return NOT_ROTATED if attention.sliding_window and not attention.is_sliding else ROTATED


def _head_norms(attention: Module) -> tuple[Module, Module]:
    return attention.q_norm, attention.k_norm


def _head_norms_if_any(attention: Module) -> tuple[Module, Module] | None:
    return _head_norms(attention) if attention.use_qk_norm else None


@dataclass(frozen=True, slots=True)
class Family:
    """Layers of attention and a feed-forward, with RMSNorms. The functions read an attention layer,
    or a configuration.

    model_class: without its subclasses, which may compute something else under the same names.
    window: its sliding window, in tokens; None: it attends to all.
    head_norms: its norms of queries and of keys, each over one head.
    rotary: the layer type for which the model's rotary embedding is asked, ROTATED or NOT_ROTATED.
    has_half_angles: whether the rotary embedding is told for the first half of what it rotates.
    softcap: the bound of its scores.
    sinks: [heads], a score without a value in each softmax.
    gates_outputs: whether each head of queries is followed by a gate of its result.
    mixer: what a layer has in the place of attention, which keeps a state.
    mlp: the feed-forward of a layer: a gated one, or experts.
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
    has_half_angles: bool = False
    softcap: Callable[[Module], float | None] = _none
    sinks: Callable[[Module], Tensor | None] = _none
    gates_outputs: bool = False
    mixer: Callable[[Module], Module | None] = _none
    mlp: Callable[[Module], Module] = lambda layer: layer.mlp
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
        window=_window_of_sliding,
        head_norms=_head_norms,
        rotary=_rotary_of_sliding,
        norms=BEHIND,
    ),
    # Granite: factors of scores, of what is added, of embeddings and of logits.
    Family(
        GraniteForCausalLM,
        residual_factor=lambda config: config.residual_multiplier,
        embedding_factor=lambda config: config.embedding_multiplier,
        changes_logits=lambda config: True,
    ),
    # Experts. Granite's have a name of their own; in GLM 4.5 and others a part of each head is
    # rotated, and the first layers may have none; GPT-OSS has windows and sinks.
    Family(MixtralForCausalLM, window=lambda attention: attention.config.sliding_window),
    Family(
        Qwen2MoeForCausalLM, window=lambda attention: getattr(attention, "sliding_window", None)
    ),
    Family(Qwen3MoeForCausalLM, window=_window, head_norms=_head_norms),
    Family(
        GraniteMoeForCausalLM,
        residual_factor=lambda config: config.residual_multiplier,
        embedding_factor=lambda config: config.embedding_multiplier,
        changes_logits=lambda config: True,
        mlp=lambda layer: layer.block_sparse_moe,
    ),
    Family(Glm4MoeForCausalLM, head_norms=_head_norms_if_any),
    Family(SolarOpenForCausalLM),
    Family(Dots1ForCausalLM, window=_window, head_norms=_head_norms),
    Family(
        ExaoneMoeForCausalLM,
        window=_window_of_sliding,
        head_norms=_head_norms,
        rotary=_rotary_of_sliding,
    ),
    Family(
        GptOssForCausalLM,
        window=_window,
        sinks=lambda attention: attention.sinks.detach(),
        has_half_angles=True,
    ),
    # Qwen 3 Next and 3.5: most layers keep a state; the others gate what they attend to, and norms
    # hold weights less 1.
    *(
        Family(
            model_class,
            head_norms=_head_norms,
            norm_plus=1.0,
            gates_outputs=True,
            mixer=lambda layer: layer._modules.get("linear_attn"),
        )
        for model_class in (Qwen3NextForCausalLM, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM)
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
    family = FAMILIES.get(type(model))
    if family is None or (family.mixer is not _none and not recurrent.can_keep_states()):
        return None
    return family


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models with such a config have a fused form, unless their parts are unusual."""
    return type(config) in _CONFIGS

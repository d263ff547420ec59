"""The table of families that have a fused form: the parts in which their layers differ."""

import torch
from torch import Tensor
from transformers import (
    Cohere2ForCausalLM,
    CohereForCausalLM,
    CwmForCausalLM,
    Dots1ForCausalLM,
    Ernie4_5_MoeForCausalLM,
    Ernie4_5ForCausalLM,
    Exaone4ForCausalLM,
    ExaoneMoeForCausalLM,
    FlexOlmoForCausalLM,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    GemmaForCausalLM,
    Glm4ForCausalLM,
    Glm4MoeForCausalLM,
    GlmForCausalLM,
    GptOssForCausalLM,
    GraniteForCausalLM,
    GraniteMoeForCausalLM,
    HeliumForCausalLM,
    HunYuanDenseV1ForCausalLM,
    HunYuanMoEV1ForCausalLM,
    HYV3ForCausalLM,
    Llama4ForCausalLM,
    LlamaForCausalLM,
    MellumForCausalLM,
    MiniMaxM2ForCausalLM,
    Ministral3ForCausalLM,
    MinistralForCausalLM,
    MistralForCausalLM,
    MixtralForCausalLM,
    Olmo2ForCausalLM,
    Olmo3ForCausalLM,
    OlmoeForCausalLM,
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
    VaultGemmaForCausalLM,
)

from deployments.engine.forward import recurrent
from deployments.engine.forward.fused import llama4
from deployments.engine.forward.fused.family import (
    BEHIND,
    BOTH,
    GATE_UP,
    NOT_ROTATED,
    PARALLEL,
    QKV,
    ROTATED,
    Angles,
    Family,
    NormNames,
    none,
)
from deployments.engine.forward.module import Module


def _window(attention: Module) -> int | None:
    # The attention of Qwen3-VL's models is that of Qwen3's, and knows no window.
    window: int | None = getattr(attention, "sliding_window", None)
    return window


def _window_of_sliding(attention: Module) -> int | None:
    return _window(attention) if attention.is_sliding else None


def _rotary_of_sliding(attention: Module) -> str:
    return NOT_ROTATED if attention.sliding_window and not attention.is_sliding else ROTATED


def _rotary_of_windows(attention: Module) -> str:
    return ROTATED if attention.sliding_window else NOT_ROTATED


def _layer_type(attention: Module) -> str:
    found: str = attention.config.layer_types[attention.layer_idx]
    return found


def _qk_norms(attention: Module) -> tuple[Module, Module]:
    return attention.q_norm, attention.k_norm


def _norms_of_hunyuan(attention: Module) -> tuple[Module, Module]:
    return attention.query_layernorm, attention.key_layernorm


def _qk_norms_if_any(attention: Module) -> tuple[Module, Module] | None:
    return _qk_norms(attention) if attention.use_qk_norm else None


def _scale_of_long(config: PretrainedConfig, rotary: str, positions: Tensor) -> Tensor:
    """Grows behind as many positions as the model first learnt."""
    told: dict[str, float] = config.rope_parameters
    laps = torch.floor(positions / told["original_max_position_embeddings"])
    return 1 + told["llama_4_scaling_beta"] * torch.log(1 + laps)


def _caps_logits(config: PretrainedConfig) -> bool:
    return config.final_logit_softcapping is not None


_FAMILIES = (
    # Llama, and all that has its layers under its name.
    Family(LlamaForCausalLM),
    # Seed-OSS: biases.
    Family(SeedOssForCausalLM),
    # Mistral: one window for all layers, or none. Ministral, CWM: some layers have windows.
    Family(MistralForCausalLM, window=lambda attention: attention.config.sliding_window),
    # Ministral 3 scales queries of long texts.
    Family(
        Ministral3ForCausalLM,
        window=lambda attention: attention.config.sliding_window,
        query_scale=_scale_of_long,
    ),
    Family(MinistralForCausalLM, window=_window),
    Family(CwmForCausalLM, window=_window),
    # Phi 3 and 4: projections are joined in the checkpoint, and a part of each head is rotated.
    Family(
        Phi3ForCausalLM,
        window=lambda attention: attention.config.sliding_window,
        joined=frozenset({QKV, GATE_UP}),
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
        window=_window,
        qk_norms=_qk_norms,
    ),
    # Exaone 4: norms behind each part; where some layers have windows the others know no positions.
    Family(
        Exaone4ForCausalLM,
        window=_window_of_sliding,
        qk_norms=_qk_norms,
        rotary=_rotary_of_sliding,
        norms=BEHIND,
    ),
    # OLMo 2 and 3: norms behind each part, and of all heads of queries and of keys together.
    Family(Olmo2ForCausalLM, qk_norms=_qk_norms, norms=BEHIND),
    Family(Olmo3ForCausalLM, window=_window, qk_norms=_qk_norms, rotary=_layer_type, norms=BEHIND),
    # Hunyuan: queries and keys are normed behind their rotary embedding.
    Family(HunYuanDenseV1ForCausalLM, qk_norms=_norms_of_hunyuan, has_qk_norms_behind=True),
    # GLM 4: neighbours are rotated together. Its later form has norms behind each part, too.
    Family(GlmForCausalLM, is_interleaved=True, joined=frozenset({GATE_UP})),
    Family(
        Glm4ForCausalLM,
        is_interleaved=True,
        joined=frozenset({GATE_UP}),
        norms=NormNames(
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ),
    ),
    # Ernie 4.5, Helium: the same rotation.
    Family(Ernie4_5ForCausalLM, is_interleaved=True),
    Family(HeliumForCausalLM, is_interleaved=True),
    # Cohere's Command R: one LayerNorm before both parts. In the later ones only layers with
    # windows know positions.
    Family(
        CohereForCausalLM,
        angles=Angles.IN_PAIRS,
        is_interleaved=True,
        norms=PARALLEL,
        has_centered_norms=True,
        is_parallel=True,
        changes_logits=lambda config: True,
        is_usual=lambda config: not config.use_qk_norm,
    ),
    Family(
        Cohere2ForCausalLM,
        window=_window,
        rotary=_rotary_of_windows,
        angles=Angles.IN_PAIRS,
        is_interleaved=True,
        norms=PARALLEL,
        has_centered_norms=True,
        is_parallel=True,
        changes_logits=lambda config: True,
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
    Family(Qwen2MoeForCausalLM, window=_window),
    Family(Qwen3MoeForCausalLM, window=_window, qk_norms=_qk_norms),
    Family(
        GraniteMoeForCausalLM,
        residual_factor=lambda config: config.residual_multiplier,
        embedding_factor=lambda config: config.embedding_multiplier,
        changes_logits=lambda config: True,
        mlp=lambda layer: layer.block_sparse_moe,
    ),
    Family(Glm4MoeForCausalLM, qk_norms=_qk_norms_if_any),
    Family(SolarOpenForCausalLM),
    Family(Dots1ForCausalLM, window=_window, qk_norms=_qk_norms),
    Family(
        ExaoneMoeForCausalLM,
        window=_window_of_sliding,
        qk_norms=_qk_norms,
        rotary=_rotary_of_sliding,
    ),
    Family(
        GptOssForCausalLM,
        window=_window,
        sinks=lambda attention: attention.sinks.detach(),
        angles=Angles.ONCE,
    ),
    Family(Ernie4_5_MoeForCausalLM, is_interleaved=True),
    Family(OlmoeForCausalLM, qk_norms=_qk_norms, is_usual=lambda config: config.clip_qkv is None),
    Family(FlexOlmoForCausalLM, qk_norms=_qk_norms, norms=BEHIND),
    Family(MiniMaxM2ForCausalLM, qk_norms=_qk_norms),
    Family(HunYuanMoEV1ForCausalLM, qk_norms=_norms_of_hunyuan, has_qk_norms_behind=True),
    Family(HYV3ForCausalLM, qk_norms=_qk_norms),
    Family(MellumForCausalLM, window=_window, qk_norms=_qk_norms, rotary=_layer_type),
    # Llama 4: windows that tumble, and layers without positions, whose queries grow with them.
    # Queries and keys are normed behind their rotary embedding. Weights of experts scale inputs.
    Family(
        Llama4ForCausalLM,
        window=llama4.window,
        has_tumbling_windows=True,
        qk_norms=llama4.qk_norms,
        has_qk_norms_behind=True,
        rotary=lambda attention: ROTATED if attention.use_rope else NOT_ROTATED,
        angles=Angles.COMPLEX,
        is_interleaved=True,
        query_scale=llama4.query_scale,
        mlp=lambda layer: layer.feed_forward,
        scales_expert_inputs=True,
        adapt=llama4.adapt,
        is_usual=lambda config: config.hidden_act == "silu",
    ),
    # Qwen 3 Next and 3.5: most layers keep a state; the others gate what they attend to, and norms
    # hold weights less 1.
    *(
        Family(
            model_class,
            qk_norms=_qk_norms,
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
    Family(
        VaultGemmaForCausalLM,
        window=_window,
        softcap=lambda attention: attention.attn_logit_softcapping,
        norms=NormNames("input_layernorm", None, "pre_feedforward_layernorm", None),
        norm_plus=1.0,
        changes_logits=_caps_logits,
    ),
    # Gemma 3: queries and keys are normed; layers with windows have another rotary embedding.
    Family(
        Gemma3ForCausalLM,
        window=_window,
        qk_norms=_qk_norms,
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
    if family is None or not family.is_usual(model.config):
        return None
    return None if family.mixer is not none and not recurrent.can_keep_states() else family


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models with such a config have a fused form, unless their parts are unusual."""
    return type(config) in _CONFIGS

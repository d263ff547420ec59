"""A fused model computes what the model computes that it was made of."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    CohereConfig,
    Dots1Config,
    Ernie4_5_MoeConfig,
    Ernie4_5Config,
    Exaone4Config,
    ExaoneMoeConfig,
    FlexOlmoConfig,
    Gemma2Config,
    GemmaConfig,
    Glm4Config,
    Glm4MoeConfig,
    GlmConfig,
    GraniteConfig,
    GraniteMoeConfig,
    HeliumConfig,
    HunYuanDenseV1Config,
    HunYuanMoEV1Config,
    HYV3Config,
    LlamaConfig,
    MellumConfig,
    MiniMaxM2Config,
    Ministral3Config,
    Olmo2Config,
    Olmo3Config,
    OlmoeConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    SeedOssConfig,
    SmolLM3Config,
    SolarOpenConfig,
    VaultGemmaConfig,
)

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.decoder import FusedDecoder, PlainDecoder, decoder
from deployments.engine.forward.forward import make_forward
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.inputs import HEAD_ALONE, StepInputs
from deployments.engine.forward.linear import (
    PackedLinear,
    gate_mul,
    is_packable,
    linear_add,
    pack_linears,
)
from deployments.engine.forward.taps import LAST_NORM
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loader import default_dtype, replace_attention
from kv.layout import group_layers
from kv.storage import Storage
from tests.models import CONFIGS, SIZES, VOCAB, tiny_model

BIASED = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.5}
SPARSE = ("qwen3_moe", "qwen2_moe", "gpt_oss")
GLM: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
}
WINDOWS, LAYERS = ["sliding_attention"] * 2 + ["full_attention"], ["dense", "sparse", "sparse"]
SPARSE_SIZES: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
FUSED: dict[str, PretrainedConfig] = {
    **{name: CONFIGS[name]() for name in ("llama", "mistral", "qwen3", "gemma3", *SPARSE)},
    "granitemoe": GraniteMoeConfig(**SIZES, residual_multiplier=0.3, num_local_experts=4),
    "glm4_moe": Glm4MoeConfig(**SIZES, **GLM, use_qk_norm=True),
    "dots1": Dots1Config(**SIZES, **GLM, sliding_window=8, max_window_layers=1),
    "exaone_moe": ExaoneMoeConfig(**SIZES, **GLM, sliding_window=8, sliding_window_pattern=2),
    "solar_open": SolarOpenConfig(**SIZES, **GLM),
    "olmo2": Olmo2Config(**SIZES),
    "olmo3": Olmo3Config(**SIZES, sliding_window=8, layer_types=WINDOWS),
    "olmoe": OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2),
    "flex_olmo": FlexOlmoConfig(**SIZES, num_experts=4, num_experts_per_tok=2),
    "minimax_m2": MiniMaxM2Config(**SIZES, num_local_experts=4, num_experts_per_tok=2),
    "hy_v3": HYV3Config(**SIZES, **SPARSE_SIZES, num_shared_experts=1, mlp_layer_types=LAYERS),
    "mellum": MellumConfig(
        **SIZES, **SPARSE_SIZES, mlp_layer_types=LAYERS, sliding_window=8, layer_types=WINDOWS
    ),
    "hunyuan": HunYuanDenseV1Config(**SIZES),
    "hunyuan_moe": HunYuanMoEV1Config(**SIZES, num_experts=4, moe_topk=2),
    "ministral3": Ministral3Config(
        **SIZES,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "llama_4_scaling_beta": 0.5,
            "original_max_position_embeddings": 4,
        },
    ),
    "ernie4_5": Ernie4_5Config(**SIZES, use_bias=True),
    "ernie4_5_moe": Ernie4_5_MoeConfig(
        **SIZES,
        moe_num_experts=4,
        moe_k=2,
        moe_intermediate_size=32,
        moe_num_shared_experts=1,
        moe_layer_start_index=1,
    ),
    "helium": HeliumConfig(**SIZES),
    "glm": GlmConfig(**SIZES, attention_bias=True),
    "glm4": Glm4Config(**SIZES, attention_bias=True),
    "cohere": CohereConfig(**{**SIZES, "pad_token_id": 0}, logit_scale=0.3),
    "cohere2": Cohere2Config(
        **{**SIZES, "pad_token_id": 0}, logit_scale=0.3, sliding_window=8, layer_types=WINDOWS
    ),
    "vaultgemma": VaultGemmaConfig(
        **SIZES, sliding_window=8, attn_logit_softcapping=5.0, layer_types=WINDOWS
    ),
    "gemma": GemmaConfig(**SIZES),
    "gemma2": Gemma2Config(
        **SIZES, sliding_window=8, attn_logit_softcapping=5.0, final_logit_softcapping=3.0
    ),
    "granite": GraniteConfig(
        **SIZES,
        logits_scaling=4.0,
        residual_multiplier=0.22,
        embedding_multiplier=12.0,
        attention_multiplier=0.3,
    ),
    "smollm3": SmolLM3Config(**SIZES, no_rope_layers=[1, 0, 1]),
    "exaone4": Exaone4Config(**SIZES, sliding_window=8, layer_types=WINDOWS),
    "phi3": Phi3Config(
        **{**SIZES, "head_dim": 16},
        sliding_window=8,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.5,
        },
    ),
    "seed_oss": SeedOssConfig(**SIZES, attention_bias=True),
    "qwen2": Qwen2Config(**BIASED, **HEADS),
    "qwen2 with windows": Qwen2Config(
        **BIASED, **HEADS, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "llama with biases": LlamaConfig(**BIASED, **HEADS, attention_bias=True),
}
MIXER = ("in_proj", "dt_proj")  # of Mamba 1
PACKABLE = is_packable(nn.Linear(16, 16, dtype=torch.bfloat16))


def build(config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(1)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "norm" in name:  # which are initialized as 0 and 1
            nn.init.uniform_(weight, 0.5, 1.5)
    replace_attention(model, find_decoding(model.to(dtype).eval()), 512)
    return model


@torch.inference_mode()
def logits(model: PreTrainedModel) -> Tensor:
    """Logits of a batch of prompts, and of a second step: a token, a chunk and a new prompt."""
    execution = find_decoding(model)
    n_groups = len(group_layers(execution.layout))
    storage = Storage(execution.layout, 18 * n_groups, 4, dtype=model.dtype)
    forward = make_forward(model, execution, storage)
    tables = np.arange(18 * n_groups).reshape(n_groups, 3, 6)
    first = forward.logits(step([9, 6], [9, 6], tables[:, :2]))
    second = forward.logits(step([10, 13, 20], [1, 7, 20], tables))
    third = forward.logits(step([11, 14, 21], [1, 1, 1], tables))  # as recorded calls
    return torch.cat([first, second, third])


def step(total: list[int], new: list[int], table: np.ndarray) -> StepInputs:
    total_len, new_len = np.array(total), np.array(new)
    ids = np.random.default_rng(sum(total)).integers(0, VOCAB, sum(new))
    positions = np.concatenate([np.arange(t - n, t) for t, n in zip(total, new, strict=True)])
    nothing = np.zeros((0, 3), dtype=np.int64)
    table = table.reshape(-1, len(total), table.shape[-1])
    return StepInputs(ids, positions, total_len, new_len, table, np.arange(len(ids)), nothing)


@pytest.mark.parametrize("kind", FUSED)
def test_a_fused_model_gives_the_logits_of_the_model(kind: str) -> None:
    model = build(FUSED[kind])
    assert isinstance(decoder(model), PlainDecoder)
    expected = logits(model)
    fuse(model)
    assert isinstance(decoder(model), FusedDecoder)
    assert torch.allclose(logits(model), expected, atol=2e-4)
    fuse(model)  # as after a sleep
    assert torch.allclose(logits(model), expected, atol=2e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma2", "qwen3_moe", "gpt_oss"])
def test_taps_are_what_the_layers_of_transformers_read(kind: str) -> None:
    asked = step([9], [9], np.arange(5)[None])
    taken = np.array([2, LAST_NORM, 0, 1])
    asked = replace(asked, logit_indices=np.array([8]), hidden_indices=np.arange(3, 9), taps=taken)
    model = tiny_model(kind)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        ids = torch.from_numpy(asked.token_ids)[None]
        expected = model(input_ids=ids, output_hidden_states=True)
        read = [expected.hidden_states[n][0, 3:] for n in taken]
        execution = find_decoding(model)
        replace_attention(model, execution, 64)
        n_groups = len(group_layers(execution.layout))
        asked = replace(asked, page_table=np.arange(5 * n_groups).reshape(n_groups, 1, 5))
        for is_fused in (False, True):
            if is_fused:
                fuse(model)
            storage = Storage(execution.layout, 5 * n_groups, 4)
            forward = make_forward(model, execution, storage)
            logits, hidden = forward.compute(asked)
            assert torch.allclose(logits, expected.logits[0, -1:], atol=2e-4)
            assert torch.allclose(hidden, torch.cat(read, 1), atol=2e-4)
            with pytest.raises(UnsupportedModelError, match="no layers"):
                forward.compute(replace(asked, taps=np.array([99])))
            only_last = replace(asked, taps=HEAD_ALONE)
            assert torch.equal(forward.compute(only_last)[1], hidden[:, 32:64])


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SIZES, final_logit_softcapping=3.0),
        CohereConfig(**SIZES, logit_scale=0.3),
        GraniteConfig(**SIZES, logits_scaling=4.0),
        OPTConfig(
            **{**SIZES, "num_key_value_heads": 4}, ffn_dim=64, word_embed_proj_dim=32
        ),  # whose layers are in a decoder
    ],
    ids=lambda config: config.model_type,
)
def test_what_a_model_does_behind_its_layers_is_done(config: PretrainedConfig) -> None:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    with torch.inference_mode():
        execution = find_decoding(model)
        n_groups = len(group_layers(execution.layout))
        alone = step([9], [9], np.arange(5 * n_groups).reshape(n_groups, 1, 5))
        model.set_attn_implementation("eager")
        expected = model(input_ids=torch.from_numpy(alone.token_ids)[None]).logits[0]
        replace_attention(model, execution, 64)
        storage = Storage(execution.layout, 5 * n_groups, 4)
        found = make_forward(model, execution, storage).logits(alone)
    assert torch.allclose(found, expected, atol=2e-4)


@pytest.mark.skipif(not PACKABLE, reason="no fast product of bfloat16 here")
@pytest.mark.parametrize("kind", FUSED)
def test_in_bfloat16_it_errs_about_as_much_as_the_model(kind: str) -> None:
    exact = logits(build(FUSED[kind]))
    model = build(FUSED[kind], torch.bfloat16)
    # The median: where experts nearly tie, rounding may choose others.
    plain = (logits(model).float() - exact).square().median()
    fuse(model)
    assert any(isinstance(module, PackedLinear) for module in model.modules())
    assert (logits(model).float() - exact).square().median() < 1.5 * plain


@pytest.mark.parametrize("kind", FUSED)
def test_bfloat16_is_chosen_where_all_of_a_models_matrices_are_packed(kind: str) -> None:
    chosen = default_dtype("cpu", FUSED[kind])
    model = build(FUSED[kind], torch.bfloat16)
    fuse(model)
    left = [module for module in model.modules() if type(module) is nn.Linear]
    assert (chosen is torch.bfloat16) is (not left)


@pytest.mark.parametrize("kind", ["gemma4", "phimoe"])
def test_others_have_it_if_quantized_or_where_the_processor_does(kind: str) -> None:
    config = tiny_model(kind).config
    assert (default_dtype("cpu", config) is torch.bfloat16) is has_native_bf16()
    quantized = default_dtype("cpu", config, is_quantized=True)
    assert (quantized is torch.bfloat16) is (has_native_bf16() or has_matmul_kernels())


@pytest.mark.parametrize("kind", ["gemma4", "phimoe"])
def test_other_models_stay_as_they_are(kind: str) -> None:
    model = tiny_model(kind)
    fuse(model)
    assert isinstance(decoder(model), PlainDecoder)


def test_a_gate_that_no_kernel_knows_stays_as_it_is() -> None:
    model = build(LlamaConfig(**BIASED, **HEADS, hidden_act="relu"))
    fuse(model)
    assert isinstance(decoder(model), PlainDecoder)


@pytest.mark.parametrize("uses_onednn", [False, True] if has_native_bf16() else [False])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_a_packed_matrix_computes_what_the_matrix_does(
    rows: int, bias: bool, uses_onednn: bool
) -> None:
    torch.manual_seed(0)
    linears = [nn.Linear(48, 80, bias=bias, dtype=torch.bfloat16) for _ in range(2)]
    x, other = torch.randn(rows, 48).bfloat16(), torch.randn(rows, 80).bfloat16()
    gate, up = (PackedLinear(linear, uses_onednn) for linear in linears)
    with torch.inference_mode():
        assert_close(gate(x), linears[0](x))
        assert_close(linear_add(up, x, other), linear_add(linears[1], x, other.clone()))
        for kind in GateActivation:
            assert_close(gate_mul(kind, gate, up, x), gate_mul(kind, linears[0], linears[1], x))


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert torch.allclose(found, expected, rtol=2e-2, atol=2e-2)


def test_a_matrix_that_its_parent_multiplies_is_not_packed() -> None:
    model = nn.ModuleDict({name: nn.Linear(16, 16, dtype=torch.bfloat16) for name in MIXER})
    pack_linears(model)
    assert type(model["dt_proj"]) is nn.Linear
    assert type(model["in_proj"]) is (PackedLinear if PACKABLE else nn.Linear)


def test_what_is_computed_beside_a_matrix_is_kept() -> None:
    model = nn.Sequential(nn.Linear(16, 16, dtype=torch.bfloat16))
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    assert not is_packable(model[0])
    assert not is_packable(nn.Linear(16, 16))

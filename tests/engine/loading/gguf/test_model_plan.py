"""A model that is written to a GGUF file comes back as it was: each weight bit for bit, and a
config by which it computes the same."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    GraniteConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    SmolLM3Config,
)

from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from tests.engine.loading.gguf import converted
from tests.engine.loading.gguf.converted import write
from tests.engine.loading.gguf.round_trip import (
    NARROW,
    WIDE,
    Case,
    check_round_trip,
    original,
    plan_of,
)

SCALED = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

DELTA_NET = {
    **WIDE,
    "num_hidden_layers": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
GRID = {
    "rope_type": "default",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.25,
    "mrope_section": [1, 1, 0],
    "mrope_interleaved": True,
}


CASES: Mapping[str, Case] = {
    "llama": Case("llama", lambda: LlamaConfig(**WIDE), converted.llama, converted.llama_keys),
    "llama, biased": Case(
        "llama",
        lambda: LlamaConfig(**WIDE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        converted.llama,
        converted.llama_keys,
    ),
    "llama 3.1": Case(
        "llama",
        lambda: LlamaConfig(**WIDE, rope_parameters={**SCALED}),
        converted.llama,
        converted.llama_keys,
        tolerance=1e-4,
        unsaid=frozenset({"rope_parameters"}),
    ),
    "mistral": Case(
        "llama",
        lambda: MistralConfig(**WIDE, sliding_window=None),
        converted.llama,
        converted.llama_keys,
        unsaid=frozenset({"model_type", "sliding_window", "mlp_bias", "pretraining_tp"})
        | {"attention_bias"},
    ),
    "mixtral": Case(
        "llama",
        lambda: MixtralConfig(**WIDE, num_local_experts=4, num_experts_per_tok=2),
        converted.llama,
        converted.llama_keys,
    ),
    "granite": Case(
        "granite",
        lambda: GraniteConfig(
            **NARROW,
            attention_multiplier=0.3,
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            logits_scaling=8.0,
        ),
        converted.llama,
        converted.granite_keys,
        unsaid=frozenset({"head_dim"}),
    ),
    "smollm3": Case(
        "smollm3",
        lambda: SmolLM3Config(**{**WIDE, "num_hidden_layers": 5}),
        converted.llama,
        converted.llama_keys,
    ),
    "qwen2": Case("qwen2", lambda: Qwen2Config(**WIDE), converted.experts, converted.no_keys),
    "qwen3": Case(
        "qwen3",
        lambda: Qwen3Config(
            **WIDE,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": 128,
            },
        ),
        converted.experts,
        converted.no_keys,
    ),
    "qwen3moe": Case(
        "qwen3moe",
        lambda: Qwen3MoeConfig(
            **WIDE,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            norm_topk_prob=True,
        ),
        converted.experts,
        converted.qwen3_moe_keys,
    ),
    "phi3": Case(
        "phi3",
        lambda: Phi3Config(
            **NARROW,
            original_max_position_embeddings=64,
            sliding_window=100,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.25, 1.5],
                "long_factor": [2.0, 3.0, 4.0],
                "original_max_position_embeddings": 64,
                "factor": 8.0,
            },
        ),
        converted.experts,
        converted.phi3_keys,
        tolerance=1e-5,
        unsaid=frozenset({"rope_parameters"}),  # the file has the factor of attention besides
    ),
    "phi4": Case(
        "phi3",
        lambda: Phi3Config(**NARROW, original_max_position_embeddings=512),
        converted.experts,
        converted.phi3_keys,
    ),
    "gpt-oss": Case(
        "gpt-oss",
        lambda: GptOssConfig(
            **WIDE,
            sliding_window=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 150_000.0,
                "factor": 8.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 64,
            },
        ),
        converted.gpt_oss,
        converted.gpt_oss_keys,
    ),
    "lfm2": Case(
        "lfm2",
        lambda: Lfm2Config(**NARROW, layer_types=["conv", "full_attention", "conv"]),
        converted.lfm2,
        converted.lfm2_keys,
        # The size of layers is in files as it is adjusted.
        unsaid=frozenset({"intermediate_size", "block_auto_adjust_ff_dim", "head_dim"}),
    ),
    "qwen3next": Case(
        "qwen3next",
        lambda: Qwen3NextConfig(**DELTA_NET, **EXPERTS),
        converted.qwen3_next,
        converted.delta_net_keys,
        tolerance=1e-4,  # a logarithm of exp is rounded
    ),
    "qwen35": Case(
        "qwen35",
        lambda: Qwen3_5TextConfig(**DELTA_NET, rope_parameters={**GRID}),
        converted.qwen35,
        converted.delta_net_keys,
        tolerance=1e-4,
    ),
    "qwen35moe": Case(
        "qwen35moe",
        lambda: Qwen3_5MoeTextConfig(
            **{name: value for name, value in DELTA_NET.items() if name != "intermediate_size"},
            **EXPERTS,
            rope_parameters={**GRID},
        ),
        converted.qwen35,
        converted.delta_net_keys,
        tolerance=1e-4,
    ),
    "gemma2": Case(
        "gemma2",
        lambda: Gemma2Config(**WIDE, sliding_window=16, query_pre_attn_scalar=16),
        converted.gemma,
        converted.gemma_keys,
    ),
    "gemma3": Case(
        "gemma3",
        lambda: Gemma3TextConfig(
            **{**WIDE, "num_hidden_layers": 7},
            sliding_window=16,
            query_pre_attn_scalar=16,
            final_logit_softcapping=30.0,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        ),
        converted.gemma,
        converted.gemma_keys,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_converted_model_is_read_as_it_was(case: Case, tmp_path: Path) -> None:
    check_round_trip(case, tmp_path)


def test_inputs_of_packed_rows_are_reordered_instead(tmp_path: Path) -> None:
    """The heads of values take turns along the rows of this tensor, where blocks do not end."""
    case = CASES["qwen35"]
    model = original(case)
    name = "model.layers.0.linear_attn.out_proj.weight"
    source = plan_of(case, model, tmp_path).sources[name]
    inputs = np.arange(24, dtype=np.float32)
    assert source.inputs is not None
    (tensor,) = source.tensors
    rows = tensor.rows() if source.rows is None else tensor.rows()[source.rows]
    found = rows.view(np.float32) @ inputs[np.argsort(source.inputs)]
    np.testing.assert_allclose(found, model.state_dict()[name].numpy() @ inputs, rtol=1e-4)


def test_layers_that_draft_are_left_out(tmp_path: Path) -> None:
    case, file = CASES["qwen35"], tmp_path / "model.gguf"
    write(
        original(case),
        file,
        case.architecture,
        add_keys=case.add_keys,
        modify=case.modify,
        more_keys={"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1},
        more_tensors={"blk.4.nextn.eh_proj.weight": np.zeros((32, 64), np.float32)},
    )
    plan = read_plan(read_gguf(file))
    assert plan.config.num_hidden_layers == 4
    assert plan.sources.keys() == plan_of(case, original(case), tmp_path).sources.keys()

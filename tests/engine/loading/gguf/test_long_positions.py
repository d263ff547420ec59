"""At positions beyond a model's first context the engine computes a GGUF file as transformers does
the original: no factor of its rotary embedding is lost."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Gemma3TextConfig, LlamaConfig, Phi3Config, PreTrainedModel, Qwen3Config

from deployments.engine.build import find_execution
from deployments.engine.forward.forward import make_forward
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.loading.loader import load_model, replace_attention
from kv.layout import group_layers
from kv.storage import Storage
from tests.engine.loading.gguf import converted
from tests.engine.loading.gguf.round_trip import Case, original
from tests.engine.loading.gguf.test_served import TOKENIZER
from tests.models import SIZES, VOCAB

CONTEXT = 1 << 17
# A token at each. Far ones alone would not show what turns slowly.
POSITIONS = np.array([0, 5, 900, 3000, 5200, 8191, 8192, 8900, 20_000, 70_000, CONTEXT - 1])
IDS = np.arange(len(POSITIONS)) * 31 % VOCAB
PAGE_SIZE = 16
LARGE = {
    **SIZES,
    "hidden_size": 128,
    "head_dim": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
N_PAIRS = 24  # that Phi rotates of each head's 32
CASES: Mapping[str, Case] = {
    "llama 3.1": Case(
        "llama",
        lambda: LlamaConfig(
            **LARGE,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        ),
        converted.llama,
        converted.llama_keys,
    ),
    "phi 3": Case(
        "phi3",
        lambda: Phi3Config(
            **LARGE,
            original_max_position_embeddings=4096,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1 + pair / 64 for pair in range(N_PAIRS)],
                "long_factor": [1 + 2.5 * pair for pair in range(N_PAIRS)],
                "original_max_position_embeddings": 4096,
                "factor": CONTEXT / 4096,
            },
        ),
        converted.experts,
        converted.phi3_keys,
    ),
    "qwen 3 by yarn": Case(
        "qwen3",
        lambda: Qwen3Config(
            **LARGE,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": CONTEXT // 4,
            },
        ),
        converted.experts,
        converted.no_keys,
    ),
    "gemma 3": Case(
        "gemma3",
        lambda: Gemma3TextConfig(
            **{**LARGE, "num_hidden_layers": 6},
            sliding_window=4,
            query_pre_attn_scalar=64,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        ),
        converted.gemma,
        converted.gemma_keys,
    ),
}


def engine_logits(file: Path) -> Tensor:
    loaded = load_model(str(file), dtype=torch.float32)
    execution = find_execution(loaded)
    replace_attention(loaded.model, execution, CONTEXT)
    fuse(loaded.model)
    groups = len(group_layers(execution.layout))
    storage = Storage(execution.layout, groups, PAGE_SIZE, dtype=torch.float32, device="cpu")
    forward = make_forward(loaded.model, execution, storage, n_state_slots=0)
    index = np.arange(len(IDS))
    return forward.logits(
        StepInputs(
            token_ids=IDS,
            positions=index,
            rotary_positions=POSITIONS,
            total_len=np.array([len(IDS)]),
            new_len=np.array([len(IDS)]),
            page_table=np.arange(groups).reshape(groups, 1, 1),
            logit_indices=index,
            stale_tails=np.empty((0, 3), dtype=np.int64),
        )
    )


def transformers_logits(model: PreTrainedModel) -> Tensor:
    ids, positions = (torch.from_numpy(numbers)[None] for numbers in (IDS, POSITIONS))
    # Without a mask it takes what does not follow for another text.
    mask = torch.ones_like(ids)
    logits: Tensor = model(ids, position_ids=positions, attention_mask=mask).logits[0]
    return logits


@torch.inference_mode()
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_logits_far_behind_the_first_context_are_those_of_the_original(
    case: Case, tmp_path: Path
) -> None:
    model = original(case)
    file = converted.write(
        model,
        tmp_path / "model.gguf",
        case.architecture,
        add_keys=case.add_keys,
        modify=case.modify,
        more_keys=TOKENIZER,
    )
    expected = transformers_logits(model)
    assert (engine_logits(file) - expected).abs().max() <= 1e-5 * expected.abs().max()

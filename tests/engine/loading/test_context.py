"""A context is as long as the config's own number and what its scaled positions extend it to."""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.configs.context import longest_context
from tests.engine.drive import engine, random_ids, request, roomy
from tests.models import SIZES, from_config

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
KINDS = {"layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("model_type", "positions", "scaling", "expected"),
    [
        # As Qwen's cards have it, by either name of the type and of the field.
        ("qwen3", 40960, {"rope_scaling": YARN}, 131072),
        ("qwen2", 32768, {"rope_scaling": {**YARN, "type": "yarn"}}, 131072),
        ("qwen3", 40960, {"rope_parameters": {**YARN, "rope_theta": 1e6}}, 131072),
        ("qwen3", 32768, {"rope_scaling": {"type": "yarn", "factor": 2}}, 65536),
        # Where the number includes it, it stays.
        ("qwen3", 131072, {"rope_scaling": YARN}, 131072),
        ("deepseek_v3", 163840,
         {"rope_scaling": {**YARN, "factor": 40, "original_max_position_embeddings": 4096}},
         163840),
        ("llama", 4096, {"rope_scaling": {"type": "linear", "factor": 8.0}}, 32768),
        ("llama", 4096, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 8192),
        ("llama", 131072,
         {"rope_scaling": {**YARN, "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0}}, 131072),
        ("llama", 4096, {}, 4096),
        # Of one kind of layers: Gemma 3's number includes it.
        ("gemma3_text", 131072,
         {**KINDS, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0},
                                       "sliding_attention": DEFAULT}}, 131072),
        ("gemma3_text", 32768,
         {**KINDS, "rope_parameters": {"full_attention": YARN, "sliding_attention": DEFAULT}},
         131072),
    ],
)  # fmt: skip
def test_scaled_positions_extend_the_context_once(
    model_type: str, positions: int, scaling: dict[str, Any], expected: int
) -> None:
    fields = {"model_type": model_type, "max_position_embeddings": positions, **scaling}
    assert longest_context(CONFIG_MAPPING[model_type].from_dict(fields)) == expected


def test_a_scale_that_is_no_number_is_refused_by_name() -> None:
    config = CONFIG_MAPPING["llama"].from_dict({"rope_scaling": {"type": "linear", "factor": 0.5}})
    with pytest.raises(UnsupportedModelError, match=r"factor of its rope_scaling is 0\.5"):
        longest_context(config)


@pytest.mark.parametrize("kind", ["yarn", "linear", "dynamic"])
def test_all_of_the_extended_context_is_served_and_no_more(kind: str) -> None:
    config = CONFIG_MAPPING["llama"](
        **{**SIZES, "max_position_embeddings": 32},
        rope_parameters={"rope_type": kind, "factor": 4.0, "rope_theta": 1e4},
    )
    model = from_config(config)
    reason, limits = "the model was made for 128 tokens", roomy(context_length=129)
    with pytest.raises(ValueError, match=reason), engine(model=model, limits=limits):
        pass
    prompt = random_ids(100, seed=1)
    model.set_attn_implementation("eager")
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=28, do_sample=False)
    with engine(model=model, limits=roomy(context_length=128)) as running:
        (outcome,) = running.run(request("long", prompt, max_tokens=None))
    n = 28 if kind != "dynamic" else 0  # transformers changes these frequencies at each token
    assert outcome.token_ids[:n] == tuple(expected[0, 100 : 100 + n].tolist())
    assert len(outcome.token_ids) == 28

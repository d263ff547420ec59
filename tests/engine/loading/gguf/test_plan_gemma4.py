"""Gemma 4's models, whose layers differ, come back as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from torch import Tensor
from transformers import Gemma4TextConfig

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from tests.engine.loading.gguf.converted import Named, set_key, write
from tests.engine.loading.gguf.round_trip import WIDE, Case, check_round_trip, original
from tests.models import VOCAB

N_LAYERS = 6
LAYERS = {
    **WIDE,
    "num_hidden_layers": N_LAYERS,
    "global_head_dim": 32,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "final_logit_softcapping": 30.0,
}


def modify(name: str, weight: Tensor, _config: Any) -> Named:
    """Source: `Gemma4Model.modify_tensors`."""
    layer = name.split(".")[2]
    if name.endswith("layer_scalar") or ".experts." in name:
        yield f"{name}.weight", weight
    elif name.endswith("router.scale"):
        yield f"blk.{layer}.ffn_gate_inp.scale", weight
    elif name.endswith("per_expert_scale"):
        yield f"blk.{layer}.ffn_down_exps.scale", weight
    else:
        yield name, weight


def keys(writer: GGUFWriter, config: Any) -> None:
    """Source: `Gemma4Model.set_gguf_parameters`."""
    shared, full = config.num_kv_shared_layers, config.per_layer_config["full_attention"]
    local = config.per_layer_config["sliding_attention"]
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    set_key(writer, "gemma4.attention.sliding_window_pattern", slides)
    for name, of_layer in (("", full), ("_swa", local)):
        set_key(writer, f"gemma4.attention.key_length{name}", of_layer.head_dim)
        set_key(writer, f"gemma4.attention.value_length{name}", of_layer.head_dim)
        set_key(writer, f"gemma4.rope.dimension_count{name}", of_layer.head_dim)
    if config.num_experts is not None:
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.use_double_wide_mlp:
        size = config.intermediate_size
        found = [size] * (config.num_hidden_layers - shared) + [2 * size] * shared
        set_key(writer, "gemma4.feed_forward_length", found)
    heads = [(local if sees else full).num_key_value_heads for sees in slides]
    set_key(writer, "gemma4.attention.head_count_kv", heads)


CASES = {
    # Layers get embeddings of their own, and the last ones have no keys.
    "e2b": Case(
        "gemma4",
        lambda: Gemma4TextConfig(
            **LAYERS,
            hidden_size_per_layer_input=24,
            vocab_size_per_layer_input=VOCAB + 4,
            num_kv_shared_layers=3,
            use_double_wide_mlp=True,
        ),
        modify,
        keys,
    ),
    # Keys are values where layers see all.
    "26b": Case(
        "gemma4",
        lambda: Gemma4TextConfig(
            **LAYERS,
            hidden_size_per_layer_input=0,
            vocab_size_per_layer_input=VOCAB,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            enable_moe_block=True,
            num_experts=4,
            top_k_experts=2,
            moe_intermediate_size=24,
        ),
        modify,
        keys,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_converted_model_is_read_as_it_was(case: Case, tmp_path: Path) -> None:
    check_round_trip(case, tmp_path)


def read_changed(path: Path, keys: dict[str, object], tensors: dict[str, list[float]]) -> set[str]:
    """The names of the tensors that are used of a file in which some are others."""
    case, file = CASES["e2b"], path / "model.gguf"
    write(
        original(case),
        file,
        "gemma4",
        add_keys=case.add_keys,
        modify=case.modify,
        leave_out="rope_freqs" if "rope_freqs.weight" in tensors else "",
        more_keys={f"gemma4.{key}": value for key, value in keys.items()},
        more_tensors={name: np.array(data, np.float32) for name, data in tensors.items()},
    )
    sources = read_plan(read_gguf(file)).sources.values()
    return {tensor.name for source in sources for tensor in source.tensors}


def test_keys_of_layers_that_share_others_are_left_out(tmp_path: Path) -> None:
    own = [f"blk.5.{name}.weight" for name in ("attn_k", "attn_v", "attn_k_norm")]
    assert not read_changed(tmp_path, {}, {name: [0.0] for name in own}) & {*own}


@pytest.mark.parametrize(
    ("keys", "tensors", "message"),
    [
        ({"attention.head_count_kv": [2, 1, 2, 2, 2, 2]}, {}, "layers of a kind do not have it"),
        ({"attention.sliding_window_pattern": [True] * N_LAYERS}, {}, "the last layer has a win"),
        ({"attention.sliding_window_pattern": [1, 0]}, {}, "no truth values for 6 layers"),
        ({"feed_forward_length": [64, 64, 128, 128, 128, 128]}, {}, "it differs otherwise"),
        ({"rope.dimension_count": 8}, {}, "it is not 32, a whole head"),
        ({"rope.dimension_count_swa": 8}, {}, "it is not 16, the size of a key"),
        ({}, {"rope_freqs.weight": [2.0] * 16}, "rope_freqs.weight is missing, or other than"),
    ],
)
def test_layers_that_can_not_be_are_named(
    keys: dict[str, object], tensors: dict[str, list[float]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GGUFError, match=message):
        read_changed(tmp_path, keys, tensors)

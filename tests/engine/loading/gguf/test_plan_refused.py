"""A file that is not read whole is refused, and the error names what is missing, left over, or of
another shape."""

from pathlib import Path

import numpy as np
import pytest
from transformers import LlamaConfig, MixtralConfig

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from tests.engine.loading.gguf import converted
from tests.models import SIZES, from_config

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
# Keys of a file of llama's, and what its error says. None takes a key away.
KEYS: dict[str, tuple[str, object, str]] = {
    "other architecture": ("general.architecture", "mamba7", "'mamba7' is not supported, only"),
    "no architecture": ("general.architecture", None, "'general.architecture': it is missing"),
    "unknown key": ("llama.attention.clamp_kqv", 8.0, "not supported: llama.attention.clamp_kqv"),
    "no size": ("llama.embedding_length", None, "'llama.embedding_length': it is missing"),
    "size of 0": ("llama.embedding_length", 0, "'llama.embedding_length': it is missing, or 0"),
    "size as text": ("llama.context_length", "long", "'long' is no whole number"),
    "no number": ("llama.attention.layer_norm_rms_epsilon", "low", "'low' is no number"),
    "infinite": ("llama.rope.freq_base", float("inf"), "inf is no finite number"),
    "heads by layer": ("llama.attention.head_count_kv", [2, 2, 1], "it differs between layers"),
    "a billion layers": ("llama.block_count", 10**9, "fewer tensors than 1000000000"),
    "more layers": ("llama.block_count", 4, "no tensor 'blk.3.attn_q.weight'"),
    "fewer layers": (
        "llama.block_count",
        2,
        "LlamaForCausalLM has no weights for its tensors blk.2",
    ),
    "long values": ("llama.attention.value_length", 9, "it is not 8, as that of keys"),
    "part of a head": ("llama.rope.dimension_count", 4, "it is not 8, a whole head"),
    "odd scaling": ("llama.rope.scaling.type", "dynamic", "'dynamic' is not supported"),
    "yarn of no length": ("llama.rope.scaling.type", "yarn", "original_context_length'"),
    "end out of range": ("tokenizer.ggml.eos_token_id", 128, "128 is no id of the 128 tokens"),
    "heads that do not fit": ("llama.attention.head_count", 5, "transformers refuses"),
}
# What a file has in the place of its tensors of this pattern, and what its error says.
TENSORS: dict[str, tuple[str, dict[str, list[int]], str]] = {
    "missing": ("blk.1.attn_k", {}, "no tensor 'blk.1.attn_k.weight', which model.layers.1.self"),
    "left over": (
        "^$",
        {"blk.0.attn_sinks.weight": [4]},
        "no weights for its tensors blk.0.attn_s",
    ),
    "no vocabulary": ("token_embd", {}, "tensor 'token_embd.weight': it is missing"),
    "turned": (
        "blk.0.ffn_up",
        {"blk.0.ffn_up.weight": [32, 64]},
        "its shape [32, 64] does not fit",
    ),
    "too few rows": ("blk.0.attn_q", {"blk.0.attn_q.weight": [24, 32]}, "which is [32, 32]"),
    "long norm": ("output_norm", {"output_norm.weight": [33]}, "which is [32]"),
    "factors": ("^$", {"rope_freqs.weight": [5]}, "its shape is [5], not [4]"),
    "factors of 0": ("^$", {"rope_freqs.weight": [4]}, "numbers that are not above 0"),
}


def refused(
    path: Path,
    config: LlamaConfig | MixtralConfig,
    leave_out: str = "",
    tensors: dict[str, list[int]] | None = None,
    keys: dict[str, object] | None = None,
) -> str:
    """The error for a file in which some keys and tensors are others."""
    file = path / "model.gguf"
    converted.write(
        from_config(config),
        file,
        "llama",
        add_keys=converted.llama_keys,
        modify=converted.llama,
        leave_out=leave_out,
        more_keys=keys,
        more_tensors={name: np.zeros(shape, np.float32) for name, shape in (tensors or {}).items()},
    )
    with pytest.raises(UnsupportedModelError) as error:
        read_plan(read_gguf(file))
    assert str(error.value).startswith(str(file))
    assert isinstance(error.value, GGUFError) or "transformers" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("key", "value", "message"), KEYS.values(), ids=KEYS)
def test_a_key_that_can_not_be_is_named(
    key: str, value: object, message: str, tmp_path: Path
) -> None:
    assert message in refused(tmp_path, LlamaConfig(**SIZES), keys={key: value})


@pytest.mark.parametrize(("leave_out", "tensors", "message"), TENSORS.values(), ids=TENSORS)
def test_a_tensor_that_can_not_be_is_named(
    leave_out: str, tensors: dict[str, list[int]], message: str, tmp_path: Path
) -> None:
    assert message in refused(tmp_path, LlamaConfig(**SIZES), leave_out, tensors)


@pytest.mark.parametrize("shape", [[4, 64, 31], [4, 63, 32], [64, 4, 32], [4 * 64, 32]], ids=str)
def test_experts_that_do_not_fit_are_named(shape: list[int], tmp_path: Path) -> None:
    name = "blk.2.ffn_up_exps.weight"
    config = MixtralConfig(**SIZES, **EXPERTS)
    message = refused(tmp_path, config, leave_out=name, tensors={name: shape})
    assert f"{name!r}: its shape {shape} does not fit model.layers.2.mlp.experts.gate" in message


def test_factors_beside_another_scaling_are_refused(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    message = refused(
        tmp_path, LlamaConfig(**SIZES, rope_parameters=rope), tensors={"rope_freqs.weight": [4]}
    )
    assert "rope_freqs.weight" in message

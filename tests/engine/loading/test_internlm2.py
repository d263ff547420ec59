"""InternLM2 and 3 are Llamas by other names: their published files give a Llama's logits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import CONFIG_MAPPING, LlamaConfig, LlamaForCausalLM

from deployments.contract.outputs import ModelTask
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loader import load_model
from tests.engine.drive import engine, random_ids, request
from tests.engine.loading.test_checks import Tensors, change_config, rewrite_weights, without

HEADS, KV_HEADS, HEAD_DIM, LAYERS = 4, 2, 16, 2
CONTEXT = 64
SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": HEADS * HEAD_DIM,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
# As the files of InternLM 2.5 have it.
CONFIG: dict[str, Any] = SIZES | {
    "model_type": "internlm2",
    "architectures": ["InternLM2ForCausalLM"],
    "auto_map": {"AutoModelForCausalLM": "modeling_internlm2.InternLM2ForCausalLM"},
    "attn_implementation": "flash_attention_2",
    "hidden_act": "silu",
    "rope_scaling": {"type": "dynamic", "factor": 2.0},
    "torch_dtype": "bfloat16",
}
NAMES = {
    "embed_tokens": "tok_embeddings",
    "lm_head": "output",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}


def llama(*, bias: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(0)
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": SIZES["rope_theta"]}
    config = LlamaConfig(
        **{**SIZES, "rope_parameters": rope}, attention_bias=bias, initializer_range=0.3
    )
    model = LlamaForCausalLM(config).float().eval()
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(weight.data, mean=1, std=0.3)
    return model


def internlm2_tensors(model: LlamaForCausalLM) -> Tensors:
    """Its weights by InternLM2's names. `wqkv` has, head of keys by head of keys, the rows of the
    heads of queries that share it, of the keys, and of the values."""
    renamed: Tensors = {}
    for name, weight in model.state_dict().items():
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        renamed[name] = weight.clone()
    for layer in range(LAYERS):
        for kind in ("weight", "bias"):
            stem = f"model.layers.{layer}."
            names = [f"{stem}self_attn.{part}_proj.{kind}" for part in "qkv"]
            if names[0] in renamed:
                q, k, v = (renamed.pop(name) for name in names)
                renamed[f"{stem}attention.wqkv.{kind}"] = torch.cat(published_rows(q, k, v))
    return renamed


def published_rows(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    rows = []
    for kv_head in range(KV_HEADS):
        sharing = [head for head in range(HEADS) if head * KV_HEADS // HEADS == kv_head]
        rows += [q[head * HEAD_DIM + at] for head in sharing for at in range(HEAD_DIM)]
        rows += [k[kv_head * HEAD_DIM + at] for at in range(HEAD_DIM)]
        rows += [v[kv_head * HEAD_DIM + at] for at in range(HEAD_DIM)]
    return [row[None] for row in rows]


def save_internlm2(path: Path, *, bias: bool = False) -> LlamaForCausalLM:
    """Returns the Llama that it was made from."""
    model = llama(bias=bias)
    save_file(internlm2_tensors(model), path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(CONFIG | {"bias": bias}))
    return model


@pytest.mark.parametrize("bias", [False, True])
def test_internlm2_has_the_logits_of_the_llama_it_was_made_from(tmp_path: Path, bias: bool) -> None:
    expected = save_internlm2(tmp_path, bias=bias)
    loaded = load_model(str(tmp_path), dtype=torch.float32).model
    assert type(loaded) is LlamaForCausalLM
    assert loaded.config.rope_parameters == expected.config.rope_parameters | {"type": "dynamic"}
    ids = torch.tensor([random_ids(2 * CONTEXT)])
    with torch.inference_mode():  # a text beyond the context, which is what the scaling is for
        assert torch.equal(loaded(ids).logits, expected(ids).logits)
    with engine(model=expected) as plain, engine(model=loaded) as running:
        answers = [which.run(request("r", range(20)))[0].token_ids for which in (plain, running)]
    assert answers[0] == answers[1]


def test_internlm2_makes_vectors_too(tmp_path: Path) -> None:
    expected = save_internlm2(tmp_path)
    loaded = load_model(str(tmp_path), dtype=torch.float32, task=ModelTask.EMBED).model
    assert torch.equal(loaded.model.norm.weight, expected.model.norm.weight)


def test_a_llama_is_saved_by_its_own_names_beside_an_internlm2(tmp_path: Path) -> None:
    save_internlm2(tmp_path)
    load_model(str(tmp_path))
    (tmp_path / "llama").mkdir()
    llama().save_pretrained(tmp_path / "llama")
    load_model(str(tmp_path / "llama"))


def adding(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: torch.ones(4)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("layers.1.attention.wqkv"), r"lack weights: model\.layers\.1\.self_attn\.k_proj"),
        (without("output"), r"lack weights: lm_head\.weight$"),
        (without("feed_forward.w3"), r"lack weights: model\.layers\.0\.mlp\.up_proj\.weight"),
        (adding("model.layers.0.attention.Plora_A.weight"), r"not compute with: .*Plora_A"),
        (adding("model.layers.0.attention.wqkv.bias"), r"not compute with: .*k_proj\.bias"),
        (adding("model.layers.2.attention.wqkv.weight"), r"not compute with: model\.layers\.2"),
        (adding("model.layers.1.feed_forward.w4.weight"), r"not compute with: .*feed_forward\.w4"),
    ],
)
def test_weights_that_are_missing_or_unknown_are_refused_by_their_names(
    tmp_path: Path, change: Callable[[Tensors], Tensors], reason: str
) -> None:
    save_internlm2(tmp_path)
    path = rewrite_weights(tmp_path, change)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_hidden_layers": 3}, r"lack weights: model\.layers\.2\."),
        ({"num_hidden_layers": 1}, r"does not compute with: model\.layers\.1\..* and 6 more"),
        ({"num_hidden_layers": 20_000}, "more layers or experts than its files have"),
        ({"vocab_size": 2**31 - 1}, r"(embed_tokens|lm_head)\.weight is \[128, 64\], not \["),
        ({"intermediate_size": 128}, r"proj\.weight is \[.*96.*\], not \[.*128"),
        ({"hidden_size": 8192}, r"weight is \[.*64\], not \[.*8192\]"),
        (
            {"num_key_value_heads": 4},
            "config says: .*: attention.wqkv has 128 rows, not the 192 of 4 heads of queries and "
            "4 of keys and values, of 16 each$",
        ),
        ({"num_attention_heads": 8}, r"attention\.wqkv has 128 rows, not the 96 of 8 heads"),
        ({"num_key_value_heads": 3}, r"attention\.wqkv has 128 rows, not the 160 of 4 heads"),
        ({"bias": True}, r"lack weights: model\.layers\.0\.self_attn\.k_proj\.bias"),
        ({"rope_scaling": {"type": "v2pe", "factor": 1.0}}, "internlm2 can't be loaded: 'v2pe'"),
        ({"architectures": ["InternLM2ForRewardModel"]}, "^internlm2 comes with code of its own"),
    ],
)
def test_a_config_that_its_files_contradict_is_refused_by_names(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    save_internlm2(tmp_path)
    path = change_config(tmp_path, **fields)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(path)


def save_internlm3(path: Path, *, bias: bool) -> LlamaForCausalLM:
    """Saves a model as its published files have it. Returns the Llama that it was made from."""
    rope = {"rope_type": "dynamic", "factor": 6.0, "rope_theta": 50_000_000}
    sizes = {**SIZES, "head_dim": 8, "rope_parameters": rope, "initializer_range": 0.3}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=bias, mlp_bias=bias)).eval()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight.data)
    save_file(model.state_dict(), path / "model.safetensors", metadata={"format": "pt"})
    fields = SIZES | {
        "model_type": "internlm3",
        "architectures": ["InternLM3ForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_internlm3.InternLM3ForCausalLM"},
        "head_dim": 8,
        "qkv_bias": bias,
        "bias": bias,
        "rope_theta": 50_000_000,
        "rope_scaling": {"rope_type": "dynamic", "factor": 6.0},
    }
    (path / "config.json").write_text(json.dumps(fields))
    return model


needs_internlm3 = pytest.mark.skipif(
    "internlm3" not in CONFIG_MAPPING, reason="needs a newer transformers"
)


@needs_internlm3
@pytest.mark.parametrize("bias", [False, True])
def test_internlm3_has_the_logits_of_the_llama_it_was_made_from(tmp_path: Path, bias: bool) -> None:
    expected = save_internlm3(tmp_path, bias=bias)
    loaded = load_model(str(tmp_path), dtype=torch.float32).model
    assert type(loaded) is LlamaForCausalLM
    ids = torch.tensor([random_ids(2 * CONTEXT)])
    with torch.inference_mode():
        assert torch.equal(loaded(ids).logits, expected(ids).logits)


@needs_internlm3
@pytest.mark.parametrize("fields", [{"qkv_bias": True}, {"bias": True}])
def test_internlm3_with_biases_that_differ_is_refused_by_their_names(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    save_internlm3(tmp_path, bias=False)
    path = change_config(tmp_path, **fields)
    with pytest.raises(UnsupportedModelError, match=r"^internlm3 can't be loaded: .*`qkv_bias`"):
        load_model(path)

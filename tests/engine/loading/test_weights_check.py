"""A config and the headers of its files agree, or the model is refused by names before anything is
allocated."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    GPTJConfig,
)

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loader import load_model
from tests.checkpoints import save_checkpoint
from tests.encoders import BERT
from tests.engine.loading.test_checks import Tensors, change_config, rewrite_weights
from tests.models import tiny_model

HUGE = 2**31 - 1  # rows of a matrix that no machine of a test has memory for


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"vocab_size": HUGE}, rf"embed_tokens\.weight is \[\d+, 64\], not \[{HUGE}, 64\]"),
        ({"intermediate_size": HUGE}, rf"proj\.weight is \[.*\], not \[.*{HUGE}"),
        # A larger model's config beside a smaller one's files.
        ({"hidden_size": 8192, "num_hidden_layers": 80}, r"weight is \[.*64\], not \[.*8192\]"),
        ({"num_hidden_layers": 3}, r"lack weights: model\.layers\.2\."),
        ({"num_hidden_layers": 20_000}, "more layers or experts than its files have"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers of its config is 1000000000, and 20000"),
        ({"num_labels": 10**9}, "num_labels of its config is 1000000000"),
        ({"max_position_embeddings": 10**30}, f"max_position_embeddings .* and {HUGE} at the most"),
        ({"hidden_size": -64}, "hidden_size of its config is -64, and no whole number from 1 on"),
        ({"vocab_size": 0}, "vocab_size of its config is 0, "),
        ({"num_attention_heads": "4"}, "num_attention_heads of its config is '4', "),
        ({"head_dim": 16.0}, "head_dim of its config is 16.0, "),
        (
            {"rope_scaling": {"type": "linear", "factor": "4"}},
            "factor of its config is '4', and no",
        ),
        (
            {"rope_parameters": {"rope_theta": float("nan")}},
            "rope_theta of its config is nan, and no",
        ),
        (
            {"rope_scaling": {"type": "dynamic", "original_max_position_embeddings": "512"}},
            "original_max_position_embeddings of its config is '512', and no whole number",
        ),
        (
            {"architectures": "LlamaForCausalLM"},
            "architectures of its config is 'LlamaForCausalLM'",
        ),
        (
            {"architectures": [None]},
            r"architectures of its config is \[None\], and no list of names",
        ),
        ({"model_type": ["llama"]}, r"model_type of its config is \['llama'\], and no name"),
        (
            {"text_config": {"vocab_size": 9}},
            "its config has a config within, which models of type llama do not have",
        ),
        ({"num_hidden_layers": 1}, r"does not compute with: model\.layers\.1\..* and 6 more"),
    ],
)
def test_a_config_that_its_files_contradict_is_refused_by_names(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    path = change_config(save_checkpoint(tmp_path), **fields)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(path)


@pytest.mark.parametrize("content", ["[]", "null", '{"a":' * 100_000])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    (save_checkpoint(tmp_path) / "config.json").write_text(content)
    with pytest.raises(UnsupportedModelError, match=r"config\.json"):
        load_model(str(tmp_path))


def test_a_table_of_positions_that_is_larger_than_the_files_is_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}
    AutoModelForCausalLM.from_config(GPTJConfig(**sizes)).save_pretrained(tmp_path)
    path = change_config(tmp_path, n_positions=HUGE)
    with pytest.raises(UnsupportedModelError, match=rf"embed_positions of \[{HUGE}, 4\]"):
        load_model(path)


def test_other_forms_of_files_are_compared_too(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    (tmp_path / "bin").mkdir()
    tiny_model().config.save_pretrained(tmp_path / "bin")
    torch.save(tiny_model().state_dict(), tmp_path / "bin" / "pytorch_model.bin")
    for folder in ("shards", "bin"):
        load_model(str(tmp_path / folder))
        path = change_config(tmp_path / folder, vocab_size=HUGE)
        with pytest.raises(UnsupportedModelError, match=rf"lm_head\.weight is .*not \[{HUGE}"):
            load_model(path)


def test_experts_that_are_merged_are_compared_in_the_form_of_the_model(tmp_path: Path) -> None:
    tiny_model("qwen3_moe").save_pretrained(tmp_path)
    load_model(str(tmp_path))
    path = change_config(tmp_path, num_local_experts=HUGE)
    with pytest.raises(UnsupportedModelError, match=rf"experts\.\w+ is \[4, .*not \[{HUGE}, "):
        load_model(path)


def adding(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: torch.ones(4) for name in names}


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.1.self_attn.q_norm.weight",
        "model.layers.1.mlp.router.weight",
        "model.layers.1.extra_layernorm.weight",
        "model.layers.2.input_layernorm.weight",
        "layers.0.self_attn.sinks",
        "model.norm.bias",
        "model.embed_positions.weight",
        "model.word_embeddings_layernorm.weight",
        "lm_head.bias",
    ],
)
def test_weights_that_the_served_layers_should_compute_with_are_refused(
    tmp_path: Path, name: str
) -> None:
    path = rewrite_weights(save_checkpoint(tmp_path), adding(name))
    reason = f"LlamaForCausalLM does not compute with: {name}$"
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(path)


def test_draft_layers_computed_buffers_other_heads_and_towers_stay_out(tmp_path: Path) -> None:
    left_out = adding(
        "model.layers.2.eh_proj.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "model.mtp_layers.0.input_proj.weight",
        "mtp.norm.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.masked_bias",
        "v_head.summary.weight",
        "score.weight",
        "model.vision_tower.embeddings.position_embedding.weight",
        "model.vision_embed_tokens.wte.weight",
        "audio_tower.layers.0.self_attn.q_proj.bias",
    )
    load_model(rewrite_weights(save_checkpoint(tmp_path), left_out))


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query", "rotary"])
def test_positions_that_the_class_does_not_read_are_refused_by_name(
    tmp_path: Path, kind: str
) -> None:
    BertModel(BertConfig(**BERT, architectures=["BertModel"])).save_pretrained(tmp_path)
    load_model(change_config(tmp_path, position_embedding_type="absolute"))
    path = change_config(tmp_path, position_embedding_type=kind)
    with pytest.raises(UnsupportedModelError, match=f"position_embedding_type .* is '{kind}'"):
        load_model(path)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_bert_with_relative_positions_is_refused_by_their_name(tmp_path: Path, prefix: str) -> None:
    BertModel(BertConfig(**BERT, architectures=["BertModel"])).save_pretrained(tmp_path)
    embeddings = [f"encoder.layer.{n}.attention.self.distance_embedding.weight" for n in range(3)]
    path = rewrite_weights(
        tmp_path,
        lambda tensors: adding(*(prefix + name for name in embeddings))(
            {prefix + name: weight for name, weight in tensors.items()}
        ),
    )
    with pytest.raises(UnsupportedModelError, match=r"does not compute with: .*distance_embedding"):
        load_model(path)
    heads = ("cls.predictions.bias", "cls.seq_relationship.bias", "embeddings.position_ids")
    tensors = load_file(tmp_path / "model.safetensors")
    kept = {name: weight for name, weight in tensors.items() if "distance" not in name}
    load_model(rewrite_weights(tmp_path, lambda _: adding(*heads)(kept)))

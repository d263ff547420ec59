"""BERT's models, which make vectors of texts, come back as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, PoolingType
from torch import Tensor
from transformers import (
    AutoModel,
    BertConfig,
    LlamaConfig,
    NomicBertConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from deployments.contract.outputs import Pooling
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from tests.engine.loading.gguf import converted
from tests.engine.loading.gguf.converted import Named, write
from tests.engine.loading.gguf.round_trip import Case, check_round_trip, original
from tests.models import SIZES, from_config

LAYERS = {
    **{name: SIZES[name] for name in ("vocab_size", "hidden_size", "intermediate_size")},
    **{name: SIZES[name] for name in ("num_hidden_layers", "num_attention_heads")},
    **{name: SIZES[name] for name in ("max_position_embeddings", "initializer_range")},
    "pad_token_id": 3,
    "layer_norm_eps": 1e-5,
}
# Names that files of the hub have for Nomic's layers.
NOMIC_NAMES = {
    "layers.": "encoder.layers.",
    "embeddings.LayerNorm": "emb_ln",
    "self_attn.o_proj": "attn.out_proj",
    "up_proj": "fc11",
    "gate_proj": "fc12",
    "down_proj": "fc2",
    "post_attention_layernorm": "norm1",
    "post_mlp_layernorm": "norm2",
}


def as_it_is(name: str, weight: Tensor, _config: Any) -> Named:
    yield name, weight


def fused_bert(name: str, weight: Tensor, config: Any) -> Named:
    """No conversion makes it, and llama.cpp reads it."""
    yield from fused(name, weight, "query", "key", "value")


def nomic(name: str, weight: Tensor, config: Any) -> Named:
    for own, known in NOMIC_NAMES.items():
        name = name.replace(own, known)
    yield from fused(name, weight, "q_proj", "k_proj", "v_proj")


FOUND: dict[str, list[Tensor]] = {}  # parts of a layer that has not all of them yet


def fused(name: str, weight: Tensor, *parts: str) -> Named:
    part = name.split(".")[-2]
    if part not in parts:
        yield name, weight
        return
    fused_name = f"blk.{name.split('.')[2]}.attn_qkv.{name.split('.')[-1]}"
    found = FOUND.setdefault(fused_name, [])
    found.append(weight)
    if len(found) == len(parts):
        yield fused_name, torch.cat(FOUND.pop(fused_name))


def keys(pooling: PoolingType) -> Any:
    def add_keys(writer: GGUFWriter, _config: Any) -> None:
        writer.add_causal_attention(False)
        writer.add_token_type_count(2)
        writer.add_pooling_type(pooling)

    return add_keys


def without_pooler(config: PretrainedConfig) -> PreTrainedModel:
    model: PreTrainedModel = AutoModel.from_config(config, add_pooling_layer=False)
    return model


CASES = {
    "bert": Case(
        "bert",
        lambda: BertConfig(**LAYERS),
        as_it_is,
        keys(PoolingType.CLS),
        make=without_pooler,
    ),
    "xlm-roberta": Case(
        "bert",
        lambda: BertConfig(**LAYERS, type_vocab_size=1),
        as_it_is,
        keys(PoolingType.LAST),
        make=without_pooler,
    ),
    "bert, fused": Case(
        "bert",
        lambda: BertConfig(**LAYERS),
        fused_bert,
        keys(PoolingType.NONE),
        make=without_pooler,
    ),
    "nomic-bert": Case(
        "nomic-bert",
        lambda: NomicBertConfig(
            **LAYERS, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}
        ),
        nomic,
        keys(PoolingType.MEAN),
        make=without_pooler,
    ),
}
POOLINGS = {
    "bert": Pooling.CLS,
    "xlm-roberta": Pooling.LAST,
    "bert, fused": Pooling.TOKEN,
    "nomic-bert": Pooling.MEAN,
}


@pytest.mark.parametrize("name", CASES)
def test_a_converted_model_is_read_as_it_was(name: str, tmp_path: Path) -> None:
    assert check_round_trip(CASES[name], tmp_path).pooling is POOLINGS[name]


def test_the_pooling_of_a_decoder_is_read(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(
        from_config(LlamaConfig(**SIZES)),
        file,
        "llama",
        add_keys=converted.llama_keys,
        modify=converted.llama,
        more_keys={"llama.pooling_type": PoolingType.LAST.value},
    )
    assert read_plan(read_gguf(file)).pooling is Pooling.LAST


def test_a_tensor_that_is_no_third_of_another_is_named(tmp_path: Path) -> None:
    case, file = CASES["nomic-bert"], tmp_path / "model.gguf"
    write(
        original(case),
        file,
        "nomic-bert",
        add_keys=case.add_keys,
        modify=case.modify,
        leave_out="blk.1.attn_qkv",
        more_tensors={"blk.1.attn_qkv.weight": np.zeros((95, 32), np.float32)},
    )
    message = r"\[95, 32\] does not fit layers.1.self_attn.q_proj.weight, which is \[32, 32\]"
    with pytest.raises(GGUFError, match=message):
        read_plan(read_gguf(file))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.causal", True, "it is not false, as that of encoders"),
        ("attention.causal", None, "it is not false, as that of encoders"),
        ("pooling_type", 4, "'bert.pooling_type': 4 is not supported"),
        ("embedding_length_out", 16, "not supported: bert.embedding_length_out"),
        ("context_length", 256, "does not fit embeddings.position_embeddings.weight"),
    ],
)
def test_a_key_that_can_not_be_is_named(
    key: str, value: object, message: str, tmp_path: Path
) -> None:
    case, file = CASES["bert"], tmp_path / "model.gguf"
    write(
        original(case),
        file,
        "bert",
        add_keys=case.add_keys,
        modify=case.modify,
        more_keys={f"bert.{key}": value},
    )
    with pytest.raises(GGUFError, match=message):
        read_plan(read_gguf(file))

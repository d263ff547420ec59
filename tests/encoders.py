"""Tiny random models that answer with vectors or labels, and what transformers makes of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    EuroBertConfig,
    Gemma3TextConfig,
    GteConfig,
    ModernBertConfig,
    MPNetConfig,
    NomicBertConfig,
    PretrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    XLMRobertaConfig,
)

from deployments.contract.outputs import Pooling
from tests.models import CONFIGS, SIZES, VOCAB

Floats = NDArray[np.float32]

BERT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
ROBERTA = BERT | {"max_position_embeddings": 514, "pad_token_id": 1}

# Those whose tokens attend both ways.
ENCODERS: dict[str, Callable[..., PretrainedConfig]] = {
    "bert": lambda **more: BertConfig(**BERT, **more),
    "roberta": lambda **more: RobertaConfig(**ROBERTA, type_vocab_size=1, **more),
    "xlm_roberta": lambda **more: XLMRobertaConfig(**ROBERTA, type_vocab_size=1, **more),
    "mpnet": lambda **more: MPNetConfig(**ROBERTA, **more),
    "distilbert": lambda **more: DistilBertConfig(
        vocab_size=VOCAB, dim=32, hidden_dim=64, n_layers=3, n_heads=4, **more
    ),
    "modernbert": lambda **more: ModernBertConfig(
        **BERT, local_attention=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, **more
    ),
    "nomic_bert": lambda **more: NomicBertConfig(**BERT, **more),
    "gte": lambda **more: GteConfig(**BERT, **more),
    "eurobert": lambda **more: EuroBertConfig(**SIZES, **more),
    "deberta_v2": lambda **more: DebertaV2Config(
        **BERT, relative_attention=True, pos_att_type=["p2c", "c2p"], **more
    ),
    "embedding_gemma": lambda **more: Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 6},
        sliding_window=16,
        query_pre_attn_scalar=8,
        use_bidirectional_attention=True,
        **more,
    ),
}
# transformers runs these by the lengths of their prompts.
BY_LENGTH = frozenset({"mpnet", "deberta_v2"})
# Those whose tokens attend to what is before them, by the names of `tests.models`.
DECODERS = ("qwen3", "mistral", "gemma2", "gemma3")


def config_of(architecture: str, **more: Any) -> PretrainedConfig:
    if architecture in ENCODERS:
        return ENCODERS[architecture](**more)
    config = CONFIGS[architecture]()
    for name, value in more.items():
        setattr(config, name, value)
    return config


def tiny_embedder(architecture: str, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModel.from_config(config_of(architecture))
    return model.float().eval()


def tiny_classifier(
    architecture: str, n_labels: int, seed: int = 0, **more: Any
) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = config_of(architecture, num_labels=n_labels, **more)
    model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)
    return model.float().eval()


def random_prompts(n: int, longest: int = 60, seed: int = 0) -> list[tuple[int, ...]]:
    """Returns prompts of 1 to `longest` random tokens, without those that may be padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    return [tuple(rng.integers(3, VOCAB, length).tolist()) for length in lengths]


@torch.inference_mode()
def hidden_states(model: PreTrainedModel, ids: Sequence[int], second_at: int = 0) -> Floats:
    """Returns transformers' hidden states of one prompt alone, [tokens, hidden]."""
    arguments: dict[str, Tensor] = {"input_ids": torch.tensor([ids])}
    if second_at:
        arguments["token_type_ids"] = (torch.arange(len(ids)) >= second_at).long()[None]
    found: Floats = model.base_model(**arguments).last_hidden_state[0].numpy()
    return found


@torch.inference_mode()
def label_logits(model: PreTrainedModel, ids: Sequence[int]) -> Floats:
    found: Floats = model(input_ids=torch.tensor([ids])).logits[0].numpy()
    return found


def pooled(states: Floats, pooling: Pooling) -> Floats:
    """[n, hidden] of states [tokens, hidden]"""
    match pooling:
        case Pooling.CLS:
            return states[:1]
        case Pooling.LAST:
            return states[-1:]
        case Pooling.MEAN:
            mean: Floats = states.mean(0, keepdims=True)
            return mean
    return states

"""Reads what sentence-transformers writes beside a model: how its hidden states become vectors.

What is not known is refused by its name: a vector without it would be another model's.
"""

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers.utils import cached_file

from deployments.contract.outputs import Pooling
from deployments.engine.errors import UnsupportedModelError, unsupported_on_error

POOLINGS = {"cls": Pooling.CLS, "mean": Pooling.MEAN, "lasttoken": Pooling.LAST}
# The fields of older files, each with the name that newer ones have for it.
POOLING_FIELDS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
# Fields of PyLate's models that change what is computed, with their defaults. None is served. Its
# lengths only cut longer texts, which is left to requests.
LATE_INTERACTION_FIELDS = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "do_query_expansion": True,
    "skiplist_words": [*string.punctuation],
}
ACTIVATIONS = {
    activation.__name__: activation
    for activation in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.LeakyReLU)
}


@dataclass(frozen=True, slots=True)
class SentenceFiles:
    """pooling None: there is none, and a vector is of one token. score_token_ids: yes and no."""

    pooling: Pooling | None = None
    dense: nn.Sequential | None = None
    normalizes: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str = ""
    max_input_tokens: int | None = None
    score_token_ids: tuple[int, ...] = ()


def read_sentence_files(path: str) -> SentenceFiles | None:
    """Reads the files of a directory or a hub id; None: it has no `modules.json`.

    Raises UnsupportedModelError for a module or a pooling that is not known, and for files that
    can't be read.
    """
    modules = read_json(path, "modules.json")
    if modules is None:
        return None
    with unsupported_on_error(f"modules.json of {path} can't be read"):
        return _read(path, modules)


def read_json(path: str, name: str) -> Any | None:
    """Reads a file of JSON. None: there is no such file."""
    file = _find(path, name)
    if file is None:
        return None
    with unsupported_on_error(f"{name} of {path} can't be read"), open(file, "rb") as opened:
        return json.load(opened)


def _find(path: str, name: str) -> str | None:
    found: str | None = cached_file(
        path,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return found


def _read(path: str, modules: list[Mapping[str, str]]) -> SentenceFiles:
    pooling: Pooling | None = None
    layers: list[nn.Module] = []
    normalizes, score_token_ids = False, tuple[int, ...]()
    for module in modules:
        folder = module["path"]
        match module["type"].rpartition(".")[2]:
            case "Transformer":
                if folder:
                    raise UnsupportedModelError(f"its model is in the folder {folder}: name that")
            case "Pooling":
                pooling = _pooling(_config(path, folder))
            case "Dense":
                layers += _dense(path, folder)
            case "Normalize":
                normalizes = True
            case "LogitScore":
                score_token_ids = _score_tokens(_config(path, folder))
            case unknown:
                raise UnsupportedModelError(f"its modules.json has a {unknown}, which is not known")
    if layers and pooling is None:
        pooling = Pooling.TOKEN  # late interaction: a vector for each token
    of_texts = read_json(path, "config_sentence_transformers.json") or {}
    is_pylate = any(module["type"].startswith("pylate.") for module in modules)
    if is_pylate or of_texts.keys() & LATE_INTERACTION_FIELDS.keys():
        _check_late_interaction(of_texts)
    prompts = of_texts.get("prompts") or {}
    return SentenceFiles(
        pooling=pooling,
        dense=nn.Sequential(*layers) if layers else None,
        normalizes=normalizes,
        prompts=tuple((name, text) for name, text in prompts.items()),
        default_prompt=of_texts.get("default_prompt_name") or "",
        max_input_tokens=_max_input_tokens(path),
        score_token_ids=score_token_ids,
    )


def _check_late_interaction(config: Mapping[str, Any]) -> None:
    for name, default in LATE_INTERACTION_FIELDS.items():
        value = default if config.get(name) is None else config[name]
        if value:
            shown = json.dumps(value, ensure_ascii=False)
            raise UnsupportedModelError(f"its {name} is {shown}, which is not served")


def _config(path: str, folder: str) -> Mapping[str, Any]:
    config: Mapping[str, Any] | None = read_json(path, f"{folder}/config.json")
    if config is None:
        raise UnsupportedModelError(f"{folder}/config.json is missing")
    return config


def _pooling(config: Mapping[str, Any]) -> Pooling:
    if not config.get("include_prompt", True):
        raise UnsupportedModelError("its pooling leaves out prompts, which is not served")
    named = config.get("pooling_mode")
    if named is None:
        named = [name for field, name in POOLING_FIELDS.items() if config.get(field)]
    names = [named] if isinstance(named, str) else list(named)
    if len(names) != 1 or names[0] not in POOLINGS:
        raise UnsupportedModelError(
            f"its pooling is {' and '.join(names) or 'none'}; served are {', '.join(POOLINGS)}"
        )
    return POOLINGS[names[0]]


def _dense(path: str, folder: str) -> list[nn.Module]:
    """A linear layer and its activation, in the type of their file."""
    config = _config(path, folder)
    name = str(config.get("activation_function", "Identity")).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise UnsupportedModelError(f"its Dense has the activation {name}, which is not known")
    if config.get("module_input_name", "sentence_embedding") not in _DENSE_INPUTS:
        raise UnsupportedModelError("its Dense reads something else than vectors")
    if config.get("use_residual"):
        raise UnsupportedModelError("its Dense has use_residual, which is not served")
    weights = _weights(path, folder)
    linear = nn.Linear(
        config["in_features"], config["out_features"], bias=bool(config.get("bias", True))
    )
    linear.load_state_dict({key.removeprefix("linear."): weight for key, weight in weights.items()})
    return [linear.float(), ACTIVATIONS[name]()]


_DENSE_INPUTS = ("sentence_embedding", "token_embeddings")


def _weights(path: str, folder: str) -> dict[str, torch.Tensor]:
    if file := _find(path, f"{folder}/model.safetensors"):
        return load_file(file)
    if file := _find(path, f"{folder}/pytorch_model.bin"):
        found: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True)
        return found
    raise UnsupportedModelError(f"{folder} has no weights")


def _score_tokens(config: Mapping[str, Any]) -> tuple[int, ...]:
    yes, no = config.get("true_token_id"), config.get("false_token_id")
    if not isinstance(yes, int):
        raise UnsupportedModelError("its LogitScore does not name a token")
    if not isinstance(no, int):
        raise UnsupportedModelError("its LogitScore names no token that stands for no")
    return yes, no


def _max_input_tokens(path: str) -> int | None:
    config = read_json(path, "sentence_bert_config.json") or {}
    tokenizer = read_json(path, "tokenizer_config.json") or {}
    if config.get("do_lower_case") and not tokenizer.get("do_lower_case"):
        raise UnsupportedModelError("its texts are to be in lower case, which its tokenizer is not")
    longest: int | None = config.get("max_seq_length")
    return longest

"""Refuses models that the engine can't serve, by their files before and after loading.

No model is served with weights that its files do not have, or that were decoded wrongly: it would
answer as another model.
"""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypedDict

from safetensors import SafetensorError, safe_open
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.loading.weight_files import weight_files

# Layers without attention keep a state, or nothing at all.
SUPPORTED_LAYER_TYPES = frozenset(
    {"full_attention", "sliding_attention", "linear_attention", "conv", "hybrid", "mlp", "moe"}
)
# Served where transformers runs them row by row: their masks and indices are its own.
LAYER_TYPES_BY_ROWS = SUPPORTED_LAYER_TYPES | {
    *("chunked_attention", "hybrid_sliding", "indexed_attention")
}
SPEECH_TYPES = frozenset({"whisper"})  # whose decoders the engine runs beside their encoders
STATELESS_LAYER_TYPES = frozenset({"mlp", "moe"})
SUPPORTED_QUANTIZATION = "mxfp4"  # transformers dequantizes it without further packages
TOKENIZER_FILES = ("tokenizer*", "*.model", "vocab*", "merges.txt", "tekken.json")
QUANTIZATION_TENSOR = re.compile(r"(scale|zero|qweight)[^.]*$")  # the end of its name
POOLER = re.compile(r"(\w+\.)?pooler\.")
GIT_LFS_HEADER = b"version https://git-lfs"
MAX_LISTED_WEIGHTS = 3  # that an error names


def read_config(path: str) -> PretrainedConfig:
    """The config of a model. `path` is a directory or a hub id.

    Raises UnsupportedModelError for a type of model that transformers does not know, OSError where
    there is no model.
    """
    config_dict, _ = PretrainedConfig.get_config_dict(path)
    model_type = config_dict.get("model_type")
    if model_type is not None and model_type not in CONFIG_MAPPING:
        reason = (
            "comes with code of its own, which is never run"
            if "auto_map" in config_dict
            else "is no type of model that the installed transformers knows"
        )
        raise UnsupportedModelError(f"{model_type} {reason}")
    with unsupported_on_error(f"{model_type or path} can't be loaded"):
        config: PretrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=False)
    return config


def check_supported(config: PretrainedConfig) -> None:
    """Raises UnsupportedModelError for an architecture or a quantization that is not served."""
    text = config.get_text_config(decoder=True)
    if getattr(text, "is_encoder_decoder", False) and text.model_type not in SPEECH_TYPES:
        raise UnsupportedModelError(f"{text.model_type} is an encoder-decoder model")
    _check_layer_types(text, LAYER_TYPES_BY_ROWS)
    if not hasattr(text, "num_hidden_layers"):
        raise UnsupportedModelError(f"{text.model_type} does not say how many layers it has")
    if (method := quantization_method(config)) not in (None, SUPPORTED_QUANTIZATION):
        raise UnsupportedModelError(f"its weights are quantized ({method}): name the original")


def check_computable_at_once(config: PretrainedConfig) -> None:
    """Raises UnsupportedModelError for an architecture that attends to other tokens than our
    attention can."""
    text = config.get_text_config(decoder=True)
    if getattr(text, "index_topk", None):
        raise UnsupportedModelError(f"{text.model_type} chooses by an index what it attends to")
    _check_layer_types(text, SUPPORTED_LAYER_TYPES)


def _check_layer_types(config: PretrainedConfig, known: frozenset[str]) -> None:
    unknown = set(getattr(config, "layer_types", None) or ()) - known
    if unknown:
        raise UnsupportedModelError(
            f"{config.model_type} has layers of type {', '.join(sorted(unknown))}; "
            f"served are {', '.join(sorted(known))}"
        )


def quantization_method(config: PretrainedConfig) -> str | None:
    """How the weights in the files are quantized, as transformers names it. None: not at all."""
    for candidate in (config, config.get_text_config(decoder=True)):
        if quantization := getattr(candidate, "quantization_config", None):
            options = quantization if isinstance(quantization, dict) else quantization.to_dict()
            method = options.get("quant_method", "of no name")
            return str(getattr(method, "value", method))
    return None


def check_tokenizer_files(path: str) -> None:
    """Raises UnsupportedModelError for a directory without a tokenizer.

    A hub id passes: its files are downloaded when they are read.
    """
    if os.path.isdir(path) and not any(any(Path(path).glob(name)) for name in TOKENIZER_FILES):
        raise UnsupportedModelError(f"{path} has no tokenizer: there is no tokenizer.json in it")


def check_weight_files(path: str) -> None:
    """Raises UnsupportedModelError if a safetensors file of a directory is missing or truncated.

    The check reads the headers alone. A hub id passes.
    """
    if not os.path.isdir(path):
        return
    for file in weight_files(Path(path)):
        if file.suffix != ".safetensors":
            continue
        try:
            with safe_open(file, "pt"):
                pass
        except FileNotFoundError as error:
            raise UnsupportedModelError(f"{file} is missing") from error
        except SafetensorError as error:
            raise UnsupportedModelError(f"{file} {_why_unreadable(file, error)}") from error


def _why_unreadable(file: Path, error: SafetensorError) -> str:
    with file.open("rb") as start:
        if start.read(len(GIT_LFS_HEADER)) == GIT_LFS_HEADER:
            return "is a pointer of git-lfs and no weights: fetch them with `git lfs pull`"
    return f"is broken or not whole: {error}"


class LoadingInfo(TypedDict):
    """What transformers reports with a loaded model (`output_loading_info`)."""

    missing_keys: set[str]
    unexpected_keys: set[str]
    mismatched_keys: set[tuple[str, Sequence[int], Sequence[int]]]  # name, shape found, expected


def check_loaded(info: LoadingInfo, *, is_bare: bool = False) -> None:
    """Raises UnsupportedModelError unless every weight came from the files in its own shape.
    `is_bare`: the model is its layers alone, and what pools behind them is of no use."""
    missing = {name for name in info["missing_keys"] if not (is_bare and POOLER.match(name))}
    if missing:
        raise UnsupportedModelError(f"its files lack weights: {_listed(missing)}")
    if mismatched := info["mismatched_keys"]:
        shapes = [f"{name} is {[*found]}, not {[*due]}" for name, found, due in mismatched]
        raise UnsupportedModelError(f"its weights are not as its config says: {_listed(shapes)}")
    if extra := [name for name in info["unexpected_keys"] if QUANTIZATION_TENSOR.search(name)]:
        raise UnsupportedModelError(
            f"its weights are quantized in a way that its config does not say ({_listed(extra)}): "
            "name the original"
        )


def _listed(names: Collection[str]) -> str:
    n_more = len(names) - MAX_LISTED_WEIGHTS
    listed = ", ".join(sorted(names)[:MAX_LISTED_WEIGHTS])
    return f"{listed} and {n_more} more" if n_more > 0 else listed

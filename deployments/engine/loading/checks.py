"""Refuses models that the engine can't serve, by their files before and after loading.

No model is served with weights that its files do not have, or that were decoded wrongly: it would
answer as another model.
"""

import json
import os
from pathlib import Path

from transformers import PretrainedConfig

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.attentions.indexed import INDEXED, has_known_indexers
from deployments.engine.loading.formats.methods import formats_of, quantization_options
from deployments.engine.loading.formats.safetensors_file import (
    POINTER,
    is_pointer,
    read_safetensors,
)
from deployments.engine.loading.weight_files import weight_files

# Layers without attention keep a state, or nothing at all.
SUPPORTED_LAYER_TYPES = frozenset(
    {"full_attention", "sliding_attention", "linear_attention", "conv", "hybrid", "mlp", "moe"}
)
# Served where transformers runs them row by row: their masks and indices are its own.
LAYER_TYPES_BY_ROWS = SUPPORTED_LAYER_TYPES | {*("chunked_attention", "hybrid_sliding", INDEXED)}
SPEECH_TYPES = frozenset({"whisper"})  # whose decoders the engine runs beside their encoders
STATELESS_LAYER_TYPES = frozenset({"mlp", "moe"})
TOKENIZER_FILES = ("tokenizer*", "*.model", "vocab*", "merges.txt", "tekken.json")


def check_supported(config: PretrainedConfig) -> None:
    """Raises UnsupportedModelError for an architecture or a quantization that is not served."""
    text = config.get_text_config(decoder=True)
    if getattr(text, "is_encoder_decoder", False) and text.model_type not in SPEECH_TYPES:
        raise UnsupportedModelError(f"{text.model_type} is an encoder-decoder model")
    _check_layer_types(text, LAYER_TYPES_BY_ROWS)
    if not hasattr(text, "num_hidden_layers"):
        raise UnsupportedModelError(f"{text.model_type} does not say how many layers it has")
    if (options := quantization_options(config)) is not None:
        formats_of(options)


def check_computable_at_once(config: PretrainedConfig) -> None:
    """Raises UnsupportedModelError for an architecture that attends to other tokens than our
    attention can."""
    text = config.get_text_config(decoder=True)
    if has_known_indexers(config):
        _check_layer_types(text, SUPPORTED_LAYER_TYPES | {INDEXED})
        return
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


def check_tokenizer_files(path: str) -> None:
    """Raises UnsupportedModelError for a directory without a tokenizer, or with a pointer to one.

    A hub id passes: its files are downloaded when they are read.
    """
    if not os.path.isdir(path):
        return
    files = [file for name in TOKENIZER_FILES for file in Path(path).glob(name) if file.is_file()]
    if not files:
        raise UnsupportedModelError(f"{path} has no tokenizer: there is no tokenizer.json in it")
    for file in files:
        if is_pointer(file):
            raise UnsupportedModelError(f"{file} {POINTER}")


def check_generation_file(path: str) -> None:
    """Raises UnsupportedModelError if a directory's generation_config.json can't be read:
    transformers takes it for one that is missing, and its ends of a sequence with it.
    """
    file = Path(path) / "generation_config.json"
    if not file.is_file():
        return
    try:
        is_object = isinstance(json.loads(file.read_bytes()), dict)
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(f"{file} can't be read: {error}") from error
    if not is_object:
        raise UnsupportedModelError(f"{file} is no object")


def check_weight_files(path: str) -> None:
    """Raises UnsupportedModelError if a safetensors file of a directory is missing or truncated.

    The check reads the headers alone. A hub id passes.
    """
    if not os.path.isdir(path):
        return
    for file in weight_files(Path(path)):
        if file.suffix == ".safetensors":
            read_safetensors(file)

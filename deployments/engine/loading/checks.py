"""Whether a model can be served: what its files say of it before and after its weights are read.

Nothing is served that would answer as another model: with weights made up where some are missing,
or read as numbers that they are not.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from safetensors import SafetensorError, safe_open
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PretrainedConfig

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.weight_files import weight_files

SERVED_LAYERS = frozenset({"full_attention", "sliding_attention"})
SERVED_QUANTIZATION = "mxfp4"  # which transformers can undo without further packages
OF_ALL_LAYERS = ("num_attention_heads", "num_key_value_heads", "head_dim")
TOKENIZERS = ("tokenizer*", "*.model", "vocab*", "merges.txt", "tekken.json")
QUANTIZED = re.compile(r"(scale|zero|qweight)[^.]*$")  # what stands beside quantized weights
GIT_LFS = b"version https://git-lfs"
NAMED = 3  # weights, of all that an error is about
MOST_SAID = 500  # characters of another's error


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Makes one sentence of whatever transformers raises for a model that it can't load."""
    try:
        yield
    except (OSError, UnsupportedModelError):  # which say it themselves
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:MOST_SAID] or type(error).__name__
        raise UnsupportedModelError(f"{what} can't be loaded: {said}") from error


def read_config(path: str) -> PretrainedConfig:
    """Of a directory or a hub id. Raises UnsupportedModelError, or OSError when there is none."""
    said, _ = PretrainedConfig.get_config_dict(path)
    kind = said.get("model_type")
    if kind is not None and kind not in CONFIG_MAPPING:
        reason = (
            "comes with code of its own, which is never run"
            if "auto_map" in said
            else "is no type of model that the installed transformers knows"
        )
        raise UnsupportedModelError(f"{kind} {reason}")
    with explained(kind or path):
        config: PretrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=False)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError(f"{config.model_type} is no causal language model of text")
    return config


def check_supported(config: PretrainedConfig) -> None:
    text = config.get_text_config(decoder=True)
    if getattr(text, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{text.model_type} is an encoder-decoder model")
    if getattr(text, "kv_lora_rank", None):
        raise UnsupportedModelError(f"{text.model_type} has compressed keys and values")
    unknown = set(getattr(text, "layer_types", None) or ()) - SERVED_LAYERS
    if unknown:
        raise UnsupportedModelError(
            f"{text.model_type} has layers of type {', '.join(sorted(unknown))}; "
            f"served are {', '.join(sorted(SERVED_LAYERS))}"
        )
    _check_alike(text)
    if not hasattr(text, "num_attention_heads") or not hasattr(text, "num_hidden_layers"):
        raise UnsupportedModelError(f"{text.model_type} is not an attention decoder")
    if (method := quantization_of(config)) not in (None, SERVED_QUANTIZATION):
        raise UnsupportedModelError(f"its weights are quantized ({method}): name the original")


def _check_alike(text: PretrainedConfig) -> None:
    layers = getattr(text, "per_layer_config", ())
    for name in OF_ALL_LAYERS:
        if len(found := {getattr(layer, name, None) for layer in layers}) > 1:
            differing = " and ".join(map(str, sorted(found, key=str)))
            raise UnsupportedModelError(
                f"{text.model_type} has layers that differ in {name} ({differing}): "
                "pages are of one shape for all layers"
            )


def quantization_of(config: PretrainedConfig) -> str | None:
    """How its files have its weights, by the name that transformers knows it by."""
    for one in (config, config.get_text_config(decoder=True)):
        if said := getattr(one, "quantization_config", None):
            options = said if isinstance(said, dict) else said.to_dict()
            method = options.get("quant_method", "of no name")
            return str(getattr(method, "value", method))
    return None


def check_tokenizer_files(path: str) -> None:
    """Of a directory: those of a hub id are fetched when they are read."""
    if os.path.isdir(path) and not any(any(Path(path).glob(kind)) for kind in TOKENIZERS):
        raise UnsupportedModelError(f"{path} has no tokenizer: there is no tokenizer.json in it")


def check_weight_files(path: str) -> None:
    """That those of a directory are there and whole, as far as they can say it themselves."""
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
            raise UnsupportedModelError(f"{file} {_broken(file, error)}") from error


def _broken(file: Path, error: SafetensorError) -> str:
    with file.open("rb") as start:
        if start.read(len(GIT_LFS)) == GIT_LFS:
            return "is a pointer of git-lfs and no weights: fetch them with `git lfs pull`"
    return f"is broken or not whole: {error}"


class LoadingInfo(TypedDict):
    """What transformers says of having read a model."""

    missing_keys: set[str]
    unexpected_keys: set[str]
    mismatched_keys: set[tuple[str, Sequence[int], Sequence[int]]]  # with shapes there and due


def check_loaded(info: LoadingInfo) -> None:
    """That each weight came from the files, of what transformers says of loading them."""
    if missing := info["missing_keys"]:
        raise UnsupportedModelError(f"its files lack weights: {_some(missing)}")
    if other := info["mismatched_keys"]:
        shapes = [f"{name} is {[*there]}, not {[*due]}" for name, there, due in other]
        raise UnsupportedModelError(f"its weights are not as its config says: {_some(shapes)}")
    if extra := [name for name in info["unexpected_keys"] if QUANTIZED.search(name)]:
        raise UnsupportedModelError(
            f"its weights are quantized in a way that its config does not say ({_some(extra)}): "
            "name the original"
        )


def _some(names: Collection[str]) -> str:
    more = len(names) - NAMED
    said = ", ".join(sorted(names)[:NAMED])
    return f"{said} and {more} more" if more > 0 else said

"""Tells by a model's files in which form they have its weights. Free of torch, for routers."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from deployments.contract.weights_form import WeightsForm
from deployments.engine.loading.gguf.description import describe
from deployments.engine.loading.gguf.names import is_gguf
from deployments.engine.loading.weight_files import weight_files
from deployments.model.local_files import local_model
from deployments.model.settings import ModelSettings

CONFIG = "config.json"
# Bytes of a weight that is quantized as it is loaded; int4 has a scale and a zero for 64.
QUANTIZED_BYTES = {"int8": 1.0, "fp8": 1.0, "int4": 0.5 + 4 / 64}
STORED_BITS = {
    "F64": 64, "I64": 64, "F32": 32, "I32": 32, "BF16": 16, "F16": 16, "I16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
}  # fmt: skip
OPTIONS = ("quantization_config", "compression_config")
# Ends of the names of what stands beside codes, in all formats of quantized weights.
BESIDE_CODES = re.compile(
    r"(scales?|scale_inv|scale_2|qzeros|g_idx|SCB|absmax|zero_point|shape|quant_map|"
    r"bitsandbytes__\w+)$"
)
CODE_BITS = 4  # of codes in words, where the options do not say it
# Errors of reading the config of a model that the engine does not serve.
CONFIG_ERRORS = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    RecursionError,
)


def weights_form(settings: ModelSettings) -> WeightsForm | None:
    """It blocks, on files. None: they are not on this disk, or are of neither format."""
    try:
        path = local_model(settings.path)
        if is_gguf(path.name):
            return _form_of_gguf(path)
        found = _form_of_folder(path)
    except (*CONFIG_ERRORS, SafetensorError):
        return None
    if found is None or settings.quantization == "none":
        return found
    bits = 8 * QUANTIZED_BYTES[settings.quantization]
    return replace(found, type=settings.quantization, bits=bits)


def _form_of_gguf(path: Path) -> WeightsForm:
    found = describe(path)
    return WeightsForm(
        format="gguf",
        type=found.type_name,
        bits=8 * found.n_bytes / found.n_weights,
        n_weights=found.n_weights,
        n_bytes=found.n_bytes,
        family=found.architecture,
        context_length=found.context_length,
        vocab_type=found.vocab_type,
        makes_vectors=found.makes_vectors,
    )


def _form_of_folder(folder: Path) -> WeightsForm | None:
    config = _config(folder)
    text = config.get("text_config") or config
    options: Mapping[str, Any] = next(
        (found for each in (config, text) for name in OPTIONS if (found := each.get(name))), {}
    )
    weights, n_bits = Counter[str](), 0
    for file in weight_files(folder):
        with safe_open(file, "np") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                tensor = tensors.get_slice(name)
                dtype, size = tensor.get_dtype(), prod(tensor.get_shape())
                n_bits += STORED_BITS[dtype] * size
                weights[dtype] += _n_codes(name, dtype, size, options) if options else size
    n_weights = sum(weights.values())
    if n_weights == 0:
        return None
    context = text.get("max_position_embeddings")
    return WeightsForm(
        format="safetensors",
        type=_method(options) or weights.most_common(1)[0][0],
        bits=n_bits / n_weights,
        n_weights=n_weights,
        n_bytes=n_bits // 8,
        family=str(config.get("model_type", "")),
        context_length=context if isinstance(context, int) else 0,
    )


def _n_codes(name: str, dtype: str, size: int, options: Mapping[str, Any]) -> int:
    """Returns the weights that a tensor of a quantized model has. Bytes have two, words more."""
    if BESIDE_CODES.search(name):
        return 0
    if dtype == "I32":
        groups = [*(options.get("config_groups") or {}).values()]
        by_group = (groups[0].get("weights") or {}).get("num_bits") if groups else None
        return (
            size * 32 // int(options.get("bits") or options.get("w_bit") or by_group or CODE_BITS)
        )
    return 2 * size if dtype == "U8" else size


def _method(options: Mapping[str, Any]) -> str:
    """Returns how weights are quantized, by the file's own word; "" where they are not."""
    method = str(options.get("quant_method", ""))
    return str(options.get("format") or method) if method == "compressed-tensors" else method


def _config(folder: Path) -> dict[str, Any]:
    with suppress(*CONFIG_ERRORS):
        found = json.loads((folder / CONFIG).read_text())
        if isinstance(found, dict):
            return found
    return {}

"""Makes models of checkpoints whose weights are quantized, and stay so.

transformers' own loader is given the weights as they are stored, and a config that does not say
that they are quantized: so names are converted, experts merged and buffers computed as in any other
model, and no weight is read.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.errors import unsupported_on_error
from deployments.engine.forward.linear import READ_DIRECTLY
from deployments.engine.loading.formats.checkpoint import (
    QuantizedCheckpoint,
    checkpoint_files,
    read_checkpoint,
)
from deployments.engine.loading.formats.methods import PLACES, quantization_options
from deployments.engine.quantized.stored_weight import StoredWeight

EXPERTS_DIMS = 3  # of weights of experts: [experts, outputs, inputs]


def quantized_checkpoint(
    path: str, config: PretrainedConfig, dtype: torch.dtype
) -> QuantizedCheckpoint | None:
    """The tensors of a directory or hub id. None: its weights are not quantized.

    Raises UnsupportedModelError or OSError.
    """
    options = quantization_options(config)
    if options is None:
        return None
    with unsupported_on_error(f"{config.model_type} can't be loaded"):
        return read_checkpoint(checkpoint_files(path, config), options, dtype)


def plain_config(config: PretrainedConfig) -> PretrainedConfig:
    """A copy that does not say that the weights are quantized."""
    plain = copy.deepcopy(config)
    for part in (plain, plain.get_text_config(decoder=True)):
        for place in PLACES:
            part.__dict__.pop(place, None)
    return plain


def load_quantized(
    path: str,
    config: PretrainedConfig,
    checkpoint: QuantizedCheckpoint,
    dtype: torch.dtype,
    auto: Any,
) -> PreTrainedModel:
    """The model that `auto` makes of a config, with the weights of a checkpoint."""
    model = model_of_weights(plain_config(config), checkpoint.tensors, dtype, auto)
    checkpoint.let_go()
    model.name_or_path = model.config.name_or_path = path
    if model.can_generate() and hasattr(model, "adjust_generation_fn"):
        model.adjust_generation_fn(
            None, None, None, path, **PLAIN_DOWNLOAD, trust_remote_code=False
        )
    return model


def model_of_weights(
    config: PretrainedConfig, weights: Mapping[str, Tensor], dtype: torch.dtype, auto: Any
) -> PreTrainedModel:
    """The model that `auto` makes of a config, with these weights by their names. Those that are
    quantized stay so where a product can be made of them."""
    with torch.device("meta"):
        made: PreTrainedModel = auto.from_config(config, dtype=dtype)
    model: PreTrainedModel = type(made).from_pretrained(
        None, config=made.config, state_dict={**weights}, dtype=dtype
    )
    _dequantize_read_directly(model)
    return model


# As `from_pretrained` reads generation_config.json.
PLAIN_DOWNLOAD: dict[str, Any] = {
    "cache_dir": None,
    "force_download": False,
    "proxies": None,
    "local_files_only": False,
    "token": None,
    "revision": "main",
    "subfolder": "",
}


def _dequantize_read_directly(model: nn.Module) -> None:
    """Dequantizes, in place, the weights that other code than a linear layer, a lookup or a product
    of experts computes with."""
    for name, module in model.named_modules():
        stays = isinstance(module, nn.Linear | nn.Embedding)
        stays &= name.rpartition(".")[2] not in READ_DIRECTLY
        for own, weight in module.named_parameters(recurse=False):
            if isinstance(weight.data, StoredWeight) and not (
                stays or weight.dim() == EXPERTS_DIMS
            ):
                plain = weight.data.dequantize().to(weight.dtype)
                module.register_parameter(own, nn.Parameter(plain, requires_grad=False))

"""Models whose weights are put into them one after the other, quantized or not."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.forward.linear import READ_DIRECTLY
from deployments.engine.quantized.stored_weight import StoredWeight


def empty_model(config: PretrainedConfig, dtype: torch.dtype, auto: Any) -> PreTrainedModel:
    """The model that `auto` makes of a config. Its parameters take no memory, its buffers are
    computed."""
    with _parameters_without_numbers():
        model: PreTrainedModel = auto.from_config(config, dtype=dtype, trust_remote_code=False)
    return model


@contextmanager
def _parameters_without_numbers() -> Iterator[None]:
    thread = get_ident()

    def replace(_module: nn.Module, _name: str, parameter: nn.Parameter) -> nn.Parameter | None:
        if parameter is None or get_ident() != thread:
            return None
        return nn.Parameter(parameter.detach().to("meta"), requires_grad=False)

    handle = register_module_parameter_registration_hook(replace)  # type: ignore[arg-type]
    try:
        yield
    finally:
        handle.remove()


def put_weight(model: PreTrainedModel, name: str, weight: Tensor) -> None:
    """Gives a model a parameter, or a buffer, of its shape. It is dequantized where no product of
    quantized weights is computed."""
    owner, _, last = name.rpartition(".")
    module = model.get_submodule(owner)
    if isinstance(weight, StoredWeight) and not _takes_quantized(module, owner, weight):
        weight = weight.dequantize().to(weight.dtype)
    if last in module._buffers:
        due = module.get_buffer(last)
        module.register_buffer(last, weight.to(due.dtype).view(due.shape))
        return
    if _stays_float32(model, name):
        weight = weight.float()
    module.register_parameter(last, nn.Parameter(weight, requires_grad=False))


def _takes_quantized(module: nn.Module, name: str, weight: Tensor) -> bool:
    if name.rpartition(".")[2] in READ_DIRECTLY:
        return False
    is_experts = weight.dim() == 3 and not isinstance(module, nn.Conv1d)
    return isinstance(module, nn.Linear | nn.Embedding) or is_experts


def _stays_float32(model: PreTrainedModel, name: str) -> bool:
    """Whether transformers keeps it so when it reads weights in half precision."""
    kept = [*(model._keep_in_fp32_modules_strict or ())]
    if model.dtype is torch.float16:
        kept += model._keep_in_fp32_modules or ()
    return any(re.search(rf"(^|\.){re.escape(part)}(\.|$)", name) for part in kept)

"""Merges LoRA adapters in PEFT's format into a model's weights: a whole adapter or nothing.

An adapter that needs more than two matrices for each module is refused, and the error names what it
needs: a partial merge would answer as another model.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from deployments.adapter_files import (
    WEIGHTS_FILE,
    AdapterError,
    AdapterInfo,
    read_adapter_files,
)
from deployments.engine.forward.adapters.target import LoraLayerWeights
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.quantized.stored_weight import StoredWeight


def merge_adapters(loaded: LoadedModel, adapters: Sequence[tuple[str, float]]) -> None:
    """Adds adapters to the weights of a model, each computed in float32 and rounded once.

    adapters: folder and scale of each. The scale multiplies the adapter's own scaling.

    Raises AdapterError for an adapter that can't be merged, before it has changed anything.
    """
    for folder, scale in adapters:
        adapter = read_adapter(Path(folder))
        linears = {name: _target(loaded, folder, name, adapter[name]) for name in adapter}
        for name, linear in linears.items():
            _merge(linear, adapter[name], scale)


@torch.no_grad()
def _merge(linear: torch.nn.Linear, lora: LoraLayerWeights, scale: float) -> None:
    weight = linear.weight  # [out, in]
    lora_a = lora.lora_a.to(weight.device, torch.float32)
    lora_b = lora.lora_b.to(weight.device, torch.float32)
    weight.copy_(weight.float().addmm_(lora_b, lora_a, alpha=scale * lora.scaling))


def _target(loaded: LoadedModel, folder: str, name: str, lora: LoraLayerWeights) -> torch.nn.Linear:
    """The linear layer that these matrices are merged into."""
    model = loaded.model
    try:
        module = model.get_submodule(loaded.own_name(name))
    except AttributeError as error:
        raise AdapterError(f"{folder}: {name}: the model has no such module") from error
    if type(module) is not torch.nn.Linear:
        raise AdapterError(f"{folder}: {name}: only linear layers are merged into")
    if isinstance(module.weight.data, StoredWeight):
        raise AdapterError(
            f"{folder}: {name}: its weights are quantized in the model's files, so that nothing is "
            "merged into them: serve the adapter beside the model (`lora-modules`)"
        )
    if module.weight is model.get_input_embeddings().weight:
        raise AdapterError(f"{folder}: {name}: its weights are the embedding's too")
    shape = (lora.lora_b.shape[0], lora.lora_a.shape[1])
    if module.weight.shape != shape:
        expected = tuple(module.weight.shape)
        raise AdapterError(f"{folder}: {name}: made for weights of {shape}, which are {expected}")
    return module


def read_adapter(folder: Path) -> dict[str, LoraLayerWeights]:
    """The matrices of an adapter, by the names of the modules that they are merged into.

    Raises AdapterError for files that can't be read or that ask for more than a merge.
    """
    return load_matrices(folder, *read_adapter_files(str(folder)))


def load_matrices(folder: Path, info: AdapterInfo, weights: bytes) -> dict[str, LoraLayerWeights]:
    """The matrices in the bytes of an adapter's file. Raises AdapterError."""
    try:
        tensors = load(weights)
    except SafetensorError as error:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} can't be read: {error}") from error
    stem = "base_model.model."
    return {
        name: LoraLayerWeights(
            tensors[f"{stem}{name}.lora_A.weight"],
            tensors[f"{stem}{name}.lora_B.weight"],
            module.scaling,
        )
        for name, module in info.modules.items()
    }

"""Computes a fingerprint of a model's weights: equal files give equal fingerprints on any machine.

The fingerprint samples each tensor. It covers the files of an adapter, not the merged weights:
those may differ in their last bits between processors.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from deployments.engine.loading.quantization import Quantization, describe_quantization
from deployments.engine.quantized.stored_weight import StoredWeight

SAMPLE_SIZE = 256  # elements of a tensor, evenly spaced: training changes nearly all elements
SAMPLED_OUTPUTS = 16  # of a quantized weight
DIGEST_BYTES = 16
WEIGHTS_SUFFIXES = {".safetensors", ".bin", ".gguf", ".json"}


def fingerprint(
    model: PreTrainedModel,
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
    kv_dtype: str = "auto",
    beside: Iterable[nn.Module] = (),
) -> str:
    """The fingerprint in hexadecimal digits, two for each of DIGEST_BYTES.

    model: as its files have it, before anything is merged or quantized.
    adapters: folder and scale of each LoRA adapter that will be merged.
    quantization: what its linear layers will become.
    kv_dtype: the type in which its keys and values will be stored.
    beside: further modules with weights.

    Raises OSError if a file of an adapter can't be read.
    """
    digest = blake2b(model.config.to_json_string().encode(), digest_size=DIGEST_BYTES)
    _add_weights(digest, (model, *beside))
    for folder, scale in adapters:
        digest.update(repr(scale).encode())
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            with (Path(folder) / name).open("rb") as file:
                digest.update(file_digest(file, "blake2b").digest())
    if quantization != "none":
        digest.update(describe_quantization(quantization).encode())
    if kv_dtype != "auto":
        digest.update(f"keys and values: {kv_dtype}".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsIdentity:
    """Tells weights, and those of what drafts for them, from all others.

    weights: on any machine. files: on this one. A fingerprint samples, and may miss a small edit:
    sizes and times of change of the files tell, where something outlives a process.
    """

    weights: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


NO_IDENTITY = WeightsIdentity()


def identify(fingerprint: str, path: str | None, drafts: Iterable[nn.Module]) -> WeightsIdentity:
    """The identity of weights at `path`. drafts: the modules of what drafts for the model, as they
    were read."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    _add_weights(digest, drafts)
    weights = fingerprint, digest.hexdigest()
    return WeightsIdentity(weights=weights, files=(*_describe_files(path),))


def _describe_files(path: str | None) -> Iterable[str]:
    if path is None or not os.path.exists(path):  # an object, or a hub id
        return
    files = [Path(path)] if os.path.isfile(path) else sorted(Path(path).iterdir())
    for file in files:
        if file.suffix in WEIGHTS_SUFFIXES:
            status = file.stat()
            yield f"{file.name} {status.st_size} {status.st_mtime_ns}"


def _add_weights(digest: blake2b, modules: Iterable[nn.Module]) -> None:
    for module in modules:
        for name, weight in module.state_dict().items():
            digest.update(repr((name, weight.shape, weight.dtype)).encode())
            digest.update(_sample(weight))


def _sample(weight: Tensor) -> bytes:
    if isinstance(weight, StoredWeight):
        return _stored_sample(weight)
    stride = max(1, weight.numel() // SAMPLE_SIZE)
    sample = weight.detach().reshape(-1)[::stride].contiguous().cpu()
    return _bytes(sample)


def _bytes(tensor: Tensor) -> bytes:
    # `contiguous` leaves the strides of a tensor of one number, by which it can't be viewed.
    copied = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return copied.view(torch.uint8).numpy().tobytes()


def _stored_sample(weight: StoredWeight) -> bytes:
    """Codes and factors of some of its outputs, which alone are read."""
    step = max(1, weight.n_outputs // SAMPLED_OUTPUTS)
    sampled = []
    for output in range(0, weight.n_outputs, step):
        rows = weight.read(output, output + 1)
        stride = max(1, weight.n_inputs * SAMPLED_OUTPUTS // SAMPLE_SIZE)
        factors = [rows.scale] if rows.least is None else [rows.scale, rows.least]
        parts = [rows.codes[:, ::stride]]
        parts += [part for both in factors for part in (both.coarse, both.fine) if part is not None]
        sampled += [rows.codebook.name.encode(), *map(_bytes, parts)]
    return b"".join(sampled)

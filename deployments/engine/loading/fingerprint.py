"""Tells weights from others by a sample of them: equal files give equal fingerprints, wherever.

Adapters count by their files: what merging adds may differ in its last bits between processors.
"""

from collections.abc import Sequence
from hashlib import blake2b, file_digest
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.loading.lora import CONFIG, WEIGHTS
from deployments.engine.loading.quantization import Quantization, described

SAMPLE = 256  # numbers of a tensor, evenly spaced: training changes next to all of them
DIGEST_BYTES = 16


def fingerprint(
    model: PreTrainedModel,
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
    kv_dtype: str = "auto",
) -> str:
    """Of a model as its files have it, and of what it will become: folders and scales of what is
    merged into it, its quantization, and what its keys and values are kept in.

    Raises OSError where an adapter's files can't be read.
    """
    digest = blake2b(model.config.to_json_string().encode(), digest_size=DIGEST_BYTES)
    for name, weight in model.state_dict().items():
        digest.update(repr((name, weight.shape, weight.dtype)).encode())
        digest.update(_sample(weight))
    for folder, scale in adapters:
        digest.update(repr(scale).encode())
        for name in (CONFIG, WEIGHTS):
            with (Path(folder) / name).open("rb") as file:
                digest.update(file_digest(file, "blake2b").digest())
    if quantization != "none":
        digest.update(described(quantization).encode())
    if kv_dtype != "auto":
        digest.update(f"keys and values: {kv_dtype}".encode())
    return digest.hexdigest()


def _sample(weight: Tensor) -> bytes:
    step = max(1, weight.numel() // SAMPLE)
    taken = weight.detach().reshape(-1)[::step].contiguous().cpu()
    return taken.view(torch.uint8).numpy().tobytes()

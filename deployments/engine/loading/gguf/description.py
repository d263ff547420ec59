"""Describes a GGUF model by its header: its types and sizes, and what it stores of a token.

It is free of torch, for routers. The loader does not ask it: an odd file that is described here may
still be refused.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np

from deployments.engine.loading.gguf.block_types import BLOCK_TYPES, type_name
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.header import Value
from deployments.engine.loading.gguf.reader import GGUF, read_gguf
from deployments.engine.loading.gguf.tensors import GGUFTensor
from kv.layout import LayerShape, Layout

MAX_DESCRIBED = 256  # files that are remembered
# `general.file_type`. Source: `llama_ftype` in llama.h.
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0",
    38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip
# `tokenizer.ggml.model`, and llama.cpp's numbers for it.
VOCAB_TYPES = {"llama": 1, "gpt2": 2, "gemma4": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}
ADAPTED = re.compile(r"blk\.\d+\.(attn_(q|k|v|qkv|output)|ffn_(gate|up|down))\.weight")
# Architectures whose files do not say which layers have the window: all but each so-manieth.
FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}
STATES = frozenset({"qwen3next", "qwen35", "qwen35moe"})  # whose layers are full, or keep a state
FULL_EVERY_STATES = 4


@dataclass(frozen=True)
class GGUFDescription:
    """The facts that a header says.

    type_name: llama.cpp's name of the mixture of types.
    n_weights, n_bytes: of all tensors.
    packed_bytes, n_plain: bytes of quantized tensors, and the weights of all others.
    context_length: that it was trained for; 0 if it is not said.
    vocab_type: llama.cpp's number; 0 if it has none.
    makes_vectors: it says how a text becomes a vector, or is an encoder.
    n_adapted: numbers of one rank of an adapter of all layers that take some.
    layout: what layers store of a token, without those that store nothing; empty if that is not
        said.
    """

    architecture: str
    type_name: str
    n_weights: int
    n_bytes: int
    packed_bytes: int
    n_plain: int
    context_length: int
    vocab_type: int
    makes_vectors: bool
    n_adapted: int
    layout: Layout


def describe(path: Path) -> GGUFDescription:
    """Reads the header once for each state of a file. Raises GGUFError, or OSError."""
    found = os.stat(path)
    return _describe(path, found.st_mtime_ns, found.st_size)


@lru_cache(MAX_DESCRIBED)
def _describe(path: Path, _time: int, _size: int) -> GGUFDescription:
    gguf = read_gguf(path)
    architecture = str(gguf.metadata.get("general.architecture", ""))
    tensors = gguf.tensors.values()
    packed = [tensor for tensor in tensors if _is_packed(tensor)]
    n_weights = sum(prod(tensor.shape) for tensor in tensors)
    n_context = gguf.metadata.get(f"{architecture}.context_length")
    return GGUFDescription(
        architecture=architecture,
        type_name=_type_name(gguf),
        n_weights=n_weights,
        n_bytes=sum(map(_n_bytes, tensors)),
        packed_bytes=sum(map(_n_bytes, packed)),
        n_plain=n_weights - sum(prod(tensor.shape) for tensor in packed),
        context_length=n_context if isinstance(n_context, int) else 0,
        vocab_type=VOCAB_TYPES.get(str(gguf.metadata.get("tokenizer.ggml.model")), 0),
        makes_vectors=f"{architecture}.pooling_type" in gguf.metadata
        or gguf.metadata.get(f"{architecture}.attention.causal") is False,
        n_adapted=sum(sum(t.shape) for t in tensors if ADAPTED.fullmatch(t.name)),
        layout=_layout(gguf, architecture),
    )


def _is_packed(tensor: GGUFTensor) -> bool:
    known = BLOCK_TYPES.get(tensor.type_id)
    return known is not None and known.n_weights > 1


def _n_bytes(tensor: GGUFTensor) -> int:
    """0 for a type that is not read here: then the model is not loaded."""
    return tensor.n_rows * tensor.row_bytes if tensor.type_id in BLOCK_TYPES else 0


def _type_name(gguf: GGUF) -> str:
    """The file's own word, or the type of most weights."""
    said = gguf.metadata.get("general.file_type")
    if isinstance(said, int) and said in FILE_TYPES:
        return FILE_TYPES[said]
    counts = Counter[int]()
    for tensor in gguf.tensors.values():
        counts[tensor.type_id] += prod(tensor.shape)
    return type_name(counts.most_common(1)[0][0]) if counts else ""


def _layout(gguf: GGUF, architecture: str) -> Layout:
    try:
        return tuple(_Sizes(gguf, architecture).layout())
    except (GGUFError, ArithmeticError):
        return ()


class _Sizes:
    """Reads the sizes of keys and values. Each method raises GGUFError for what is no number."""

    def __init__(self, gguf: GGUF, architecture: str) -> None:
        self._gguf = gguf
        self._metadata: Mapping[str, Value] = gguf.metadata
        self._architecture = architecture

    def layout(self) -> list[LayerShape]:
        if self._metadata.get(f"{self._architecture}.attention.causal") is False:
            return []
        n_layers = self._n_layers()
        if rank := self._number("attention.kv_lora_rank", 0):
            head_dim = rank + self._number("rope.dimension_count")
            return [LayerShape(1, head_dim, value_dim=rank)] * n_layers
        kv_heads = self._by_layer("attention.head_count_kv", n_layers)
        n_own = n_layers - self._number("attention.shared_kv_layers", 0)
        own = range(min(n_own, n_layers))  # the others have theirs from these
        stores = [layer for layer in own if kv_heads[layer] and not self._keeps_state(layer)]
        return [self._shape(layer, kv_heads[layer], n_layers) for layer in stores]

    def _shape(self, layer: int, kv_heads: int, n_layers: int) -> LayerShape:
        window = self._window(layer, n_layers)
        head_dim = self._number("attention.key_length", 0) or (
            self._number("embedding_length")
            // max(self._by_layer("attention.head_count", n_layers))
        )
        if window is not None:
            head_dim = self._number("attention.key_length_swa", head_dim)
        return LayerShape(kv_heads, head_dim, window)

    def _window(self, layer: int, n_layers: int) -> int | None:
        window = self._number("attention.sliding_window", 0) or None
        pattern = self._metadata.get(f"{self._architecture}.attention.sliding_window_pattern")
        if isinstance(pattern, np.ndarray) and len(pattern) >= n_layers:
            return window if pattern[layer] else None
        every = FULL_EVERY.get(self._architecture)
        return None if every and (layer + 1) % every == 0 else window

    def _keeps_state(self, layer: int) -> bool:
        every = self._number("full_attention_interval", FULL_EVERY_STATES)
        return self._architecture in STATES and (layer + 1) % max(every, 1) != 0

    def _n_layers(self) -> int:
        found = self._number("block_count") - self._number("nextn_predict_layers", 0)
        if not 0 < found <= len(self._gguf.tensors):
            raise self._error("block_count")
        return found

    def _by_layer(self, name: str, n_layers: int) -> list[int]:
        value = self._metadata.get(f"{self._architecture}.{name}")
        if not isinstance(value, np.ndarray):
            return [self._number(name)] * n_layers
        if value.dtype.kind not in "iu" or len(value) < n_layers:
            raise self._error(name)
        return [int(number) for number in value[:n_layers]]

    def _number(self, name: str, otherwise: int | None = None) -> int:
        value = self._metadata.get(f"{self._architecture}.{name}", otherwise)
        if not isinstance(value, int) or value < 0:
            raise self._error(name)
        return value

    def _error(self, name: str) -> GGUFError:
        return GGUFError(f"{self._gguf.files[0]}: key '{self._architecture}.{name}': it is odd")

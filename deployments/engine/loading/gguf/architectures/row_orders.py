"""The orders of rows in files that are not those of the parameters."""

from math import prod

import numpy as np
from transformers import PretrainedConfig

from deployments.engine.loading.gguf.architectures.architecture import RowOrder
from deployments.engine.loading.gguf.weight_source import RowNumbers, Shape


def halves_of_heads(config: PretrainedConfig, shapes: tuple[Shape, ...]) -> RowNumbers:
    """Q and K of Llama: the two numbers that are rotated together stand side by side in files, and
    half a head apart in the parameter. Source: `LlamaModel.permute` in llama.cpp's conversion."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pairs = np.arange(prod(shapes[0])).reshape(-1, head_dim // 2, 2)
    return pairs.swapaxes(1, 2).ravel()


def joined_by_expert(_config: PretrainedConfig, shapes: tuple[Shape, ...]) -> RowNumbers:
    """Each expert gets its rows of the first tensor, then those of the second one, and so on."""
    ends = np.cumsum([prod(shape) for shape in shapes])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    of_experts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    return np.concatenate(of_experts, axis=1).ravel()


def in_turns(_config: PretrainedConfig, shapes: tuple[Shape, ...]) -> RowNumbers:
    """The tensors' rows take turns: the first one of each, then the second one of each."""
    n_rows = sum(prod(shape) for shape in shapes)
    return np.arange(n_rows).reshape(len(shapes), -1).T.ravel()


def part(nth: int, n_parts: int) -> RowOrder:
    """The nth of as many parts of a tensor's rows, all of one size."""

    def rows(_config: PretrainedConfig, shapes: tuple[Shape, ...]) -> RowNumbers:
        numbers: RowNumbers = np.arange(prod(shapes[0])).reshape(n_parts, -1)[nth]
        return numbers

    return rows

"""Gumbel noise, and the draw by it, written for numpy: what any kernel gives to the bit."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.rng import mix

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]
SERIES = tuple(2 / odd for odd in (13, 11, 9, 7, 5, 3))


def natural_log(x: Floats) -> Floats:
    bits = x.view(np.uint64)
    exponent = (bits - np.uint64(0x3FE6A09E667F3BCD)).view(np.int64) >> 52
    part = (bits - (exponent.view(np.uint64) << np.uint64(52))).view(np.float64) - 1
    ratio = part / (part + 2)
    square = ratio * ratio
    series = np.full_like(ratio, 2 / 15)
    for factor in SERIES:
        series = series * square + factor
    result: Floats = exponent * np.log(2) + (ratio * 2 + ratio * (square * series))
    return result


def gumbel_noise(bits: Bits) -> Floats:
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -natural_log(-natural_log(1 - uniform))


def sums(logits: Tensor, keys: Tensor) -> Floats:
    """Logits [rows, vocab], less the largest of each row, and noise by its key [rows] int64."""
    below = (logits - logits.amax(1, keepdim=True)).double().numpy()
    ids = np.arange(logits.shape[1], dtype=np.uint64)
    noise = gumbel_noise(mix(keys.numpy().view(np.uint64)[:, None] + ids))
    result: Floats = below + noise
    return result


def drawn(logits: Tensor, keys: Tensor) -> list[int]:
    """The token of each row."""
    token_ids: list[int] = sums(logits, keys).argmax(1).tolist()
    return token_ids


def random_keys(n: int) -> Tensor:
    return torch.from_numpy(mix(np.arange(n, dtype=np.uint64)).view(np.int64))


def batches(vocab: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits [rows, vocab] and keys [rows]: flat and spread, in order, large, mostly banned."""
    rows, keys = 5, random_keys(5)
    generator = torch.Generator().manual_seed(vocab)
    for spread in (0.0, 0.1, 3.0, 40.0):
        logits = spread * torch.randn(rows, vocab, generator=generator)
        yield logits, keys
        yield logits.sort(1).values + 1e6, keys
        banned = torch.rand(rows, vocab, generator=generator) < 0.99
        banned[:, vocab // 2] = False
        yield logits.masked_fill(banned, -torch.inf), keys


def unmixed(bits: int) -> int:
    """The number that `mix` makes these bits of: SplitMix64 run backwards."""
    every = 2**64 - 1
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        mixed = bits
        for _ in range(64 // shift):
            mixed = bits ^ (mixed >> shift)
        bits = mixed * pow(factor, -1, 2**64) & every
    return (bits - 0x9E3779B97F4A7C15) & every

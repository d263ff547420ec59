"""Heads that copy, in the first weights.

A small model spends most of a short training on finding out how to say again what it was told.
The circuit for that is known (induction heads, Olsson et al. 2022): a head that looks at the token
before, and one above it that looks for what followed the same token earlier and says that. Random
first weights hardly ever have it; these do, for any vocabulary, and training is free to change it.
"""

import torch
from torch import Generator, Tensor

from serve_app.demo.training.network import THETA, Network

FAST, SLOW = 0.1, 0.003  # radians a token: rotary pairs that tell positions, and that don't
SHARPNESS = 6.0  # of attention by position: how far, in logits, the next position is behind
GAIN = 2.1  # of queries and keys by content: about ten in logits for the same token
PREVIOUS_SCALE, COPY_SCALE = 0.05, 0.1  # what the heads add is about as large as an embedding


@torch.no_grad()
def prime(network: Network, seed: int) -> None:
    """Puts the circuit into heads of the first two layers in use; needs random first weights."""
    made = Generator().manual_seed(seed)
    shape = network.shape
    # A constant in one channel, for heads that look at positions alone. It is as long as an
    # embedding, so that both are half of what a norm lets through.
    network.embed[:, 0] = network.embed.std() * shape.hidden**0.5
    told = _basis(shape.head_dim, shape.hidden, made)
    kept = _basis(2 * shape.head_dim, shape.hidden, made)
    _look_back(network, told, kept.chunk(2))
    for kv_head in range(min(2, shape.kv_heads)):
        _look_for(network, kv_head, told, kept[: shape.head_dim], made)


def _basis(rows: int, hidden: int, made: Generator) -> Tensor:
    """[rows, hidden]: orthonormal, and blind to the constant."""
    columns, _ = torch.linalg.qr(torch.randn(hidden - 1, rows, generator=made))
    return torch.nn.functional.pad(columns.T, (1, 0))


def _speeds(dim: int) -> Tensor:
    """Radians a token, of each pair of a head's dimensions."""
    return THETA ** (-torch.arange(0, dim, 2) / dim)


def _look_back(network: Network, told: Tensor, kept: tuple[Tensor, ...]) -> None:
    """Has the first layer tell what the token before is, and the one before that."""
    shape, dim = network.shape, network.shape.head_dim
    speeds = _speeds(dim)
    pairs = torch.nonzero(speeds > FAST).flatten()
    fall = (1 - speeds[pairs].cos()).sum() / dim**0.5
    strength = (SHARPNESS / fall).sqrt() / (shape.hidden / 2) ** 0.5
    query, key, value = network.heads(network.used[0])
    key[0].zero_()[pairs, 0] = strength
    value[0] = told
    for head, back in enumerate((1, 2)):
        query[head].zero_()
        query[head, pairs, 0] = strength * (back * speeds[pairs]).cos()
        query[head, pairs + dim // 2, 0] = -strength * (back * speeds[pairs]).sin()
        network.out[network.used[0]][:, head * dim : (head + 1) * dim] = (
            PREVIOUS_SCALE * kept[head].T
        )


def _look_for(
    network: Network, kv_head: int, told: Tensor, before: Tensor, made: Generator
) -> None:
    """Has the second layer copy what stands where the token before is this one."""
    dim, head = network.shape.head_dim, kv_head * network.shape.group
    slow = torch.nonzero(_speeds(dim) < SLOW).flatten()
    places = torch.cat((slow, slow + dim // 2))
    seen = torch.randperm(dim, generator=made)[: len(places)]
    query, key, value = network.heads(network.used[1])
    query[head].zero_()[places] = GAIN * told[seen]
    key[kv_head].zero_()[places] = GAIN * before[seen]
    copied = _basis(dim, network.shape.hidden, made)
    value[kv_head] = copied
    network.out[network.used[1]][:, head * dim : (head + 1) * dim] = COPY_SCALE * copied.T

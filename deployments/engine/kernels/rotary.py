"""The rotary embedding in the form that all backends take."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

MIN_TABLE, MAX_TABLE = 1 << 10, 1 << 14  # positions


class RotaryEmbedding(NamedTuple):
    """A rotary embedding of the first numbers of a head, of all or some.

    It is applied to them as `x * cos + x.roll(rotated / 2) * sin`.
    """

    cos: Tensor  # [tokens, 1, rotated]
    sin: Tensor  # [tokens, 1, rotated], negative in the first half

    def apply_(self, x: Tensor) -> Tensor:
        """Rotates x [tokens, heads, head_dim] in place."""
        first = x[..., : self.cos.shape[-1]]
        rotated = first.roll(first.shape[-1] // 2, -1)
        first.mul_(self.cos).addcmul_(rotated, self.sin)
        return x


def rotary_embedding(cos: Tensor, sin: Tensor) -> RotaryEmbedding:
    """The rotary embedding of `cos` and `sin` [1, tokens, rotated] of a model's rotary module."""
    half = sin.shape[-1] // 2
    signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
    return RotaryEmbedding(cos[0, :, None].contiguous(), signed[:, None])


class RotaryTable:
    """The rotary embedding of all positions up to the last one that was asked for, or more: but for
    those behind MAX_TABLE, which are computed each time."""

    def __init__(self, compute: Callable[[Tensor], RotaryEmbedding]) -> None:
        """`compute` makes it of positions [1, tokens]. A token's is a function of its position."""
        self._compute = compute
        self._known: Tensor | None = None  # [2, positions, 1, rotated], of cos and sin

    def take(self, positions: Tensor) -> RotaryEmbedding:
        """Looks up positions [tokens]."""
        known = self._up_to(positions)
        if known is None:
            return self._compute(positions[None])
        return RotaryEmbedding(*known.index_select(1, positions).unbind())

    def take_into(self, out: Tensor, positions: Tensor) -> None:
        """Writes what `take` returns: [2, tokens, 1, rotated], cosines first."""
        known = self._up_to(positions)
        if known is None:
            torch.stack(self._compute(positions[None]), out=out)
        else:
            torch.index_select(known, 1, positions, out=out)

    def _up_to(self, positions: Tensor) -> Tensor | None:
        """Cosines and sines of all positions up to the last one of these. [2, positions, 1,
        rotated]"""
        n = int(positions.numpy().max()) + 1
        if n > MAX_TABLE:
            return None
        if self._known is None or n > self._known.shape[1]:
            n = max(MIN_TABLE, 1 << (n - 1).bit_length())
            self._known = torch.stack(self._compute(torch.arange(n)[None]))
        return self._known


Rotaries = Mapping[str, RotaryEmbedding]  # of a model's layers, by a kind


def no_rotation(x: Tensor) -> RotaryEmbedding:
    """The one that changes nothing, for layers that know no positions. x: [tokens, ...]"""
    cos = x.new_ones(len(x), 1, 2)
    return RotaryEmbedding(cos, torch.zeros_like(cos))

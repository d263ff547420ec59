"""The rotary embedding in the form that all backends take."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

MIN_TABLE, MAX_TABLE = 1 << 10, 1 << 14  # positions


class RotaryEmbedding(NamedTuple):
    """A rotary embedding of the first numbers of a head, of all or some.

    Two numbers are rotated together: one of each half, or two neighbours if it is interleaved. It
    is applied as `x * cos + partner * sin`.
    """

    cos: Tensor  # [tokens, 1, rotated]
    sin: Tensor  # [tokens, 1, rotated], negative for the first one of two
    is_interleaved: bool = False
    query_scale: Tensor | None = None  # [tokens, 1, 1], a factor of queries alone

    def apply_(self, x: Tensor) -> Tensor:
        """Rotates x [tokens, heads, head_dim] in place, and leaves it unscaled."""
        first = x[..., : self.cos.shape[-1]]
        if self.is_interleaved:
            partners = first.view(*first.shape[:-1], -1, 2).flip(-1).flatten(-2)
        else:
            partners = first.roll(first.shape[-1] // 2, -1)
        first.mul_(self.cos).addcmul_(partners, self.sin)
        return x

    def map(self, change: Callable[[Tensor], Tensor]) -> "RotaryEmbedding":
        """The same one in other tensors."""
        scale = None if self.query_scale is None else change(self.query_scale)
        return RotaryEmbedding(change(self.cos), change(self.sin), self.is_interleaved, scale)


def rotary_embedding(
    cos: Tensor, sin: Tensor, is_interleaved: bool = False, query_scale: Tensor | None = None
) -> RotaryEmbedding:
    """The rotary embedding of `cos` and `sin` [1, tokens, rotated] of a model's rotary module, and
    of a factor of queries [1, tokens].

    `cos` and `sin` have the angles of all pairs of numbers, and then once more.
    """
    half = sin.shape[-1] // 2
    cos, sin = cos[0, :, None], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)[:, None]
    if is_interleaved:
        cos, sin = _side_by_side(cos), _side_by_side(sin)
    scale = None if query_scale is None else query_scale[0, :, None, None]
    return RotaryEmbedding(cos.contiguous(), sin, is_interleaved, scale)


def _side_by_side(halves: Tensor) -> Tensor:
    """Lays each number of the first half beside its partner in the second."""
    return halves.reshape(*halves.shape[:-1], 2, -1).transpose(-1, -2).flatten(-2)


class RotaryTable:
    """The rotary embedding of all positions up to the last one that was asked for, or more: but for
    those behind MAX_TABLE, which are computed each time."""

    def __init__(self, compute: Callable[[Tensor], RotaryEmbedding]) -> None:
        """`compute` makes it of positions [1, tokens]. A token's is a function of its position."""
        self._compute = compute
        self._known: Tensor | None = None  # [2, positions, 1, rotated], of cos and sin
        self._is_interleaved = False
        self._scale: Tensor | None = None

    def take(self, positions: Tensor) -> RotaryEmbedding:
        """Looks up positions [tokens]."""
        n = int(positions.numpy().max()) + 1
        if n > MAX_TABLE:
            return self._compute(positions[None])
        if self._known is None or n > self._known.shape[1]:
            n = max(MIN_TABLE, 1 << (n - 1).bit_length())
            cos, sin, self._is_interleaved, self._scale = self._compute(torch.arange(n)[None])
            self._known = torch.stack([cos, sin])
        cos, sin = self._known.index_select(1, positions).unbind()
        scale = None if self._scale is None else self._scale.index_select(0, positions)
        return RotaryEmbedding(cos, sin, self._is_interleaved, scale)


Rotaries = Mapping[str, RotaryEmbedding]  # of a model's layers, by a kind


def no_rotation(x: Tensor) -> RotaryEmbedding:
    """The one that changes nothing, for layers that know no positions. x: [tokens, ...]"""
    cos = x.new_ones(len(x), 1, 2)
    return RotaryEmbedding(cos, torch.zeros_like(cos))

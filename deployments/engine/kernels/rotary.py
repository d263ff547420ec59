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

    def copy_(self, other: "RotaryEmbedding") -> None:
        """Makes it another one of the same kind."""
        self.cos.copy_(other.cos)
        self.sin.copy_(other.sin)
        if self.query_scale is not None and other.query_scale is not None:
            self.query_scale.copy_(other.query_scale)


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
        self._known: RotaryEmbedding | None = None

    def take(self, positions: Tensor) -> RotaryEmbedding:
        """Looks up positions [tokens]."""
        known = self._up_to(positions)
        if known is None:
            return self._compute(positions[None])
        return known.map(lambda part: part.index_select(0, positions))

    def take_into(self, out: RotaryEmbedding, positions: Tensor) -> None:
        """Writes what `take` returns into the tensors of another one."""
        known = self._up_to(positions)
        if known is None:
            out.copy_(self._compute(positions[None]))
            return
        torch.index_select(known.cos, 0, positions, out=out.cos)
        torch.index_select(known.sin, 0, positions, out=out.sin)
        if known.query_scale is not None and out.query_scale is not None:
            torch.index_select(known.query_scale, 0, positions, out=out.query_scale)

    def _up_to(self, positions: Tensor) -> RotaryEmbedding | None:
        """Computes it up to the last one of these positions; None: these are too many."""
        n = int(positions.numpy().max()) + 1
        if n > MAX_TABLE:
            return None
        if self._known is None or n > len(self._known.cos):
            n = max(MIN_TABLE, 1 << (n - 1).bit_length())
            self._known = self._compute(torch.arange(n)[None])
        return self._known


Rotaries = Mapping[str, RotaryEmbedding]  # of a model's layers, by a kind


def no_rotation(x: Tensor, query_scale: Tensor | None = None) -> RotaryEmbedding:
    """The one that rotates nothing, for layers that know no positions. x: [tokens, ...]; the factor
    of queries is [1, tokens]."""
    cos = x.new_ones(len(x), 1, 2)
    scale = None if query_scale is None else query_scale[0, :, None, None]
    return RotaryEmbedding(cos, torch.zeros_like(cos), query_scale=scale)

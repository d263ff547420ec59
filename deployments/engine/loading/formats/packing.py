"""Unpacks codes that share bytes, and takes rows of mapped tensors."""

import torch
from torch import Tensor


def as_bytes(packed: Tensor) -> Tensor:
    """The bytes of whole numbers [..., n], lowest first: uint8 [..., bytes]."""
    return packed.contiguous().view(torch.uint8)


def fields(packed: Tensor, bits: int) -> Tensor:
    """The fields of `bits` bits in bytes [..., n], lowest first: uint8 [..., 8 n / bits].

    bits: 2, 4, 8, or 3, whose fields may begin in one byte and end in the next.
    """
    if bits == 8:
        return packed
    if bits == 3:
        planes = torch.stack([packed >> place & 1 for place in range(8)], -1).flatten(-2)
        whole = planes[..., : planes.shape[-1] // 3 * 3]
        return whole[..., ::3] | whole[..., 1::3] << 1 | whole[..., 2::3] << 2
    mask = (1 << bits) - 1
    return torch.stack([packed >> place & mask for place in range(0, 8, bits)], -1).flatten(-2)


def taken(tensor: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """Some entries of a dimension. Those that lie side by side stay where they are."""
    n = len(index)
    if n == 0:
        return tensor.narrow(dim, 0, 0)
    first, last = int(index[0]), int(index[-1])
    if last - first == n - 1 and torch.equal(index, torch.arange(first, last + 1)):
        return tensor.narrow(dim, first, n)
    return tensor.index_select(dim, index)

"""Attention to compressed keys and values (MLA): the latents that all heads share are stored, never
what a head makes of them.

A head's key is a matrix times the latent, and so is its value. The first matrix is multiplied with
the query instead, the second one with what attention returns: the same sums in another order.
"""

import torch
from torch import Tensor, nn

# In transformers' modules, the projection of latents to keys and values. `LatentHeads` takes its
# place.
PROJECTION = "kv_b_proj"


class LatentHeads(nn.Module):
    """The matrices of the heads of one attention module, with the weight of its projection."""

    def __init__(self, weight: Tensor, key_dim: int, value_dim: int) -> None:
        """`weight` is [heads * (key_dim + value_dim), rank]: of each head, its matrix of keys
        without their rotary part, then its matrix of values."""
        super().__init__()
        self.weight = weight
        self.rank: int = weight.shape[1]
        self._dims = key_dim, value_dim

    def absorb(self, query: Tensor) -> Tensor:
        """[1, heads, tokens, key_dim + rotary_dim] -> [1, heads, tokens, rank + rotary_dim]"""
        key_dim, _ = self._dims
        latent = query[0, ..., :key_dim] @ self._matrices[:, :key_dim]
        return torch.cat([latent, query[0, ..., key_dim:]], -1)[None]

    def expand(self, latents: Tensor) -> Tensor:
        """[1, tokens, heads, rank] -> [1, tokens, heads, value_dim]"""
        key_dim, _ = self._dims
        values = latents[0].transpose(0, 1) @ self._matrices[:, key_dim:].transpose(1, 2)
        return values.transpose(0, 1)[None]

    def shared(self, latent: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [1, 1, tokens, rank + rotary_dim] of all heads, and their first numbers as values.

        It takes the place of `expand_kv`, which makes keys and values of each head.
        """
        keys = torch.cat([latent, rotary], -1)
        return keys, keys[..., : self.rank]

    def projection(self) -> nn.Linear:
        """Returns the linear layer that these heads replace, with the same weight."""
        linear = nn.Linear(self.rank, len(self.weight), bias=False, device="meta")
        linear.weight = nn.Parameter(self.weight, requires_grad=False)
        return linear

    @property
    def _matrices(self) -> Tensor:
        """[heads, key_dim + value_dim, rank]"""
        return self.weight.view(-1, sum(self._dims), self.rank)


def latent_heads(module: nn.Module) -> LatentHeads | None:
    """Returns the heads of an attention module; None: it makes keys and values of each head."""
    heads = getattr(module, PROJECTION, None)
    return heads if isinstance(heads, LatentHeads) else None

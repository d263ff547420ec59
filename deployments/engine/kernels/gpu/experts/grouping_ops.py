"""Groups the tokens of a step by the experts that they are sent to, in a device's memory."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.gpu.experts.grouping_kernels import (
    choose_kernel,
    count_kernel,
    place_kernel,
)

MAX_COUNTED = 512  # choices of experts that one program counts
COMPARED = 1 << 14  # pairs of a choice and an expert that it compares at once
MAX_AT_ONCE = 32  # choices of these
WARPS = 8


@dataclass(frozen=True)
class ChosenExperts:
    """Experts of tokens in a device's memory, as blocks of tokens that have one expert each.

    A token's place is its number times `of_a_token`, and the number of its choice.

    places: int64 [n], ascending by their experts.
    begins: int64 [blocks, 2], where each block begins and ends among the places.
    experts: int64 [blocks], its expert; below 0: the block is empty.
    tokens: of a block, at most.
    of_a_token: experts.
    """

    places: Tensor
    begins: Tensor
    experts: Tensor
    tokens: int
    of_a_token: int


def tokens_of_blocks(n: int, n_experts: int, sizes: Mapping[int, float]) -> int:
    """Chooses how many tokens a block has, for `n` choices of experts: the first one of the sizes
    up to whose mean experts have that many tokens."""
    mean = n / n_experts
    return next(tokens for tokens, most in sizes.items() if mean <= most)


def chosen_experts(index: Tensor, n_experts: int, tokens: int) -> ChosenExperts:
    """Makes blocks of up to `tokens` of an index [tokens, experts of a token]. What is no number of
    an expert is none.

    No number of the index is known here: there is room for as many blocks as there can be.
    """
    n, index = index.numel(), index.contiguous()
    n_blocks = min(n, n_experts + n // tokens)
    places = torch.empty(n, dtype=torch.int64, device=index.device)
    begins = places.new_empty(n_blocks, 2)
    experts = places.new_empty(n_blocks)
    found = ChosenExperts(places, begins, experts, tokens, index.shape[1])
    if n:
        _sort(index, found, n_experts)
    return found


def at_once(n_experts: int) -> int:
    """Choices that are compared with so many experts at once: more would not stay in registers."""
    return min(MAX_AT_ONCE, max(1, COMPARED // n_experts))


def _sort(index: Tensor, found: ChosenExperts, n_experts: int) -> None:
    n, n_blocks = index.numel(), len(found.experts)
    out = found.places, found.begins, found.experts, n, n_blocks
    padded = triton.next_power_of_2(n_experts + 1)
    shape = {"EXPERTS": n_experts, "EXPERTS_PADDED": padded, "AT_ONCE": at_once(padded)}
    blocks = {"TOKENS": found.tokens, "BLOCKS": triton.next_power_of_2(n_blocks)}
    if n <= MAX_COUNTED:
        size = max(MAX_AT_ONCE, triton.next_power_of_2(n))
        choose_kernel[(1,)](index, *out, PLACES=size, num_warps=WARPS, **shape, **blocks)
        return
    n_programs = triton.cdiv(n, MAX_COUNTED)
    counts = torch.empty(n_programs, padded, dtype=torch.int32, device=index.device)
    grid = (n_programs,)
    count_kernel[grid](index, counts, n, PLACES=MAX_COUNTED, num_warps=WARPS, **shape)
    place_kernel[grid](
        index, counts, *out, PLACES=MAX_COUNTED, PROGRAMS_AT_ONCE=at_once(padded), num_warps=WARPS,
        **shape, **blocks,
    )  # fmt: skip

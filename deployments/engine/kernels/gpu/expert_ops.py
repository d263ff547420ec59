"""Groups the tokens of a step by the experts that they are sent to, in a device's memory."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.gpu.expert_kernels import choose_kernel

TOKENS = (8, 16, 32)  # of a block, of which matrix instructions take 8 each
MAX_COUNTED = 512  # choices of experts that one program counts
AT_ONCE = 32  # that it compares all with


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


def chosen_experts(index: Tensor, n_experts: int) -> ChosenExperts:
    """The blocks of an index [tokens, experts of a token]. Experts from n_experts on are none.

    No number of it is known here: there is room for as many blocks as there can be.
    """
    n = index.numel()
    mean = n / n_experts
    tokens = TOKENS[0] if mean <= TOKENS[0] / 2 else TOKENS[1] if mean <= TOKENS[1] else TOKENS[2]
    n_blocks = min(n, n_experts + n // tokens)
    if 0 < n <= MAX_COUNTED:
        return _counted(index, n_experts, n_blocks, tokens)
    return sorted_experts(index, n_experts, n_blocks, tokens)


def _counted(index: Tensor, n_experts: int, n_blocks: int, tokens: int) -> ChosenExperts:
    """The same in one launch, for few tokens."""
    n, index = index.numel(), index.contiguous()
    places = torch.empty(n, dtype=torch.int64, device=index.device)
    begins = places.new_empty(n_blocks, 2)
    experts = places.new_empty(n_blocks)
    choose_kernel[(1,)](
        index, places, begins, experts, n, n_blocks, EXPERTS=n_experts, TOKENS=tokens,
        PLACES=triton.next_power_of_2(n), EXPERTS_PADDED=triton.next_power_of_2(n_experts + 1),
        BLOCKS=triton.next_power_of_2(n_blocks), AT_ONCE=AT_ONCE, num_warps=8,
    )  # fmt: skip
    return ChosenExperts(places, begins, experts, tokens, index.shape[1])


def sorted_experts(index: Tensor, n_experts: int, n_blocks: int, tokens: int) -> ChosenExperts:
    """The same by torch, whose ten launches do not matter beside products of many tokens."""
    of_a_token, n = index.shape[1], index.numel()
    ascending, places = index.flatten().sort(stable=True)
    numbers = torch.arange(max(n, n_experts) + 1, device=index.device)
    starts = torch.searchsorted(ascending, numbers[: n_experts + 1].to(index.dtype))
    of_experts = (starts.diff() + tokens - 1).div(tokens, rounding_mode="floor")
    ends = of_experts.cumsum(0)
    block = numbers[:n_blocks]
    experts = torch.searchsorted(ends, block, right=True)
    own = experts.clamp(max=n_experts - 1)
    first = starts[own] + (block - ends[own] + of_experts[own]) * tokens
    begins = torch.stack([first, torch.minimum(first + tokens, starts[own + 1])], 1)
    experts = torch.where(experts < n_experts, experts, -1)
    return ChosenExperts(places, begins, experts, tokens, of_a_token)

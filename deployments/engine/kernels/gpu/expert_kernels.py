"""The Triton kernel that groups few tokens by their experts, in one program."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "n_blocks"])
def choose_kernel(
    index, places, begins, experts, n, n_blocks, EXPERTS: tl.constexpr, TOKENS: tl.constexpr,
    PLACES: tl.constexpr, EXPERTS_PADDED: tl.constexpr, BLOCKS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Sorts places by their experts, by counting what is before each, and parts them into blocks of
    one expert. Choices from EXPERTS on are none, and stand last."""
    place, expert = tl.arange(0, PLACES), tl.arange(0, EXPERTS_PADDED)
    own = tl.minimum(tl.load(index + place, mask=place < n, other=EXPERTS).to(tl.int32), EXPERTS)
    before = tl.zeros((PLACES,), dtype=tl.int32)
    start = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    count = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    for first in range(0, PLACES, AT_ONCE):
        other = first + tl.arange(0, AT_ONCE)
        chosen = tl.load(index + other, mask=other < n, other=EXPERTS).to(tl.int32)
        chosen = tl.minimum(chosen, EXPERTS)[None, :]
        is_earlier = (chosen == own[:, None]) & (other[None, :] < place[:, None])
        before += tl.sum(((chosen < own[:, None]) | is_earlier).to(tl.int32), 1)
        start += tl.sum((chosen < expert[:, None]).to(tl.int32), 1)
        count += tl.sum((chosen == expert[:, None]).to(tl.int32), 1)
    tl.store(places + before, place.to(tl.int64), mask=place < n)
    count = tl.where(expert < EXPERTS, count, 0)
    blocks = (count + TOKENS - 1) // TOKENS
    first_block = tl.cumsum(blocks, 0) - blocks
    for number in range(tl.cdiv(n, TOKENS)):
        is_there = number < blocks
        begin = start + number * TOKENS
        at = first_block + number
        tl.store(experts + at, expert.to(tl.int64), mask=is_there)
        tl.store(begins + 2 * at, begin.to(tl.int64), mask=is_there)
        end = tl.minimum(begin + TOKENS, start + count)
        tl.store(begins + 2 * at + 1, end.to(tl.int64), mask=is_there)
    block = tl.arange(0, BLOCKS)
    is_empty = (block >= tl.sum(blocks, 0)) & (block < n_blocks)
    tl.store(experts + block, tl.full((BLOCKS,), -1, tl.int64), mask=is_empty)

"""Triton kernels that sort tokens by their experts, and part them into blocks of one expert each.

Choices are sorted by counting. Of many, each program counts some; a second kernel then knows how
many are before its own. No number of tokens leaves the device.
"""

import triton
import triton.language as tl


@triton.jit
def _chosen(index, place, n, EXPERTS: tl.constexpr):
    """The experts of places. Those that have none get EXPERTS."""
    found = tl.load(index + place, mask=place < n, other=EXPERTS)
    return tl.where((found >= 0) & (found < EXPERTS), found, EXPERTS).to(tl.int32)


@triton.jit
def _store_blocks(
    begins, experts, start, count, n_blocks, EXPERTS: tl.constexpr, EXPERTS_PADDED: tl.constexpr,
    TOKENS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Stores which places each block has, and marks those behind the last one."""
    expert, block = tl.arange(0, EXPERTS_PADDED), tl.arange(0, BLOCKS)
    count = tl.where(expert < EXPERTS, count, 0)
    blocks = (count + TOKENS - 1) // TOKENS
    first_block = tl.cumsum(blocks, 0) - blocks
    for number in range(tl.max(blocks, 0)):
        is_there = number < blocks
        begin = start + number * TOKENS
        at = first_block + number
        tl.store(experts + at, expert.to(tl.int64), mask=is_there)
        tl.store(begins + 2 * at, begin.to(tl.int64), mask=is_there)
        end = tl.minimum(begin + TOKENS, start + count)
        tl.store(begins + 2 * at + 1, end.to(tl.int64), mask=is_there)
    is_empty = (block >= tl.sum(blocks, 0)) & (block < n_blocks)
    tl.store(experts + block, tl.full((BLOCKS,), -1, tl.int64), mask=is_empty)


@triton.jit(do_not_specialize=["n", "n_blocks"])
def choose_kernel(
    index, places, begins, experts, n, n_blocks, EXPERTS: tl.constexpr, TOKENS: tl.constexpr,
    PLACES: tl.constexpr, EXPERTS_PADDED: tl.constexpr, BLOCKS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """One program sorts few places. Those without an expert stand last."""
    place, expert = tl.arange(0, PLACES), tl.arange(0, EXPERTS_PADDED)
    own = _chosen(index, place, n, EXPERTS)
    before = tl.zeros((PLACES,), dtype=tl.int32)
    start = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    count = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    for first in range(0, PLACES, AT_ONCE):
        other = first + tl.arange(0, AT_ONCE)
        chosen = _chosen(index, other, n, EXPERTS)[None, :]
        is_earlier = (chosen == own[:, None]) & (other[None, :] < place[:, None])
        before += tl.sum(((chosen < own[:, None]) | is_earlier).to(tl.int32), 1)
        start += tl.sum((chosen < expert[:, None]).to(tl.int32), 1)
        count += tl.sum((chosen == expert[:, None]).to(tl.int32), 1)
    tl.store(places + before, place.to(tl.int64), mask=place < n)
    _store_blocks(begins, experts, start, count, n_blocks, EXPERTS, EXPERTS_PADDED, TOKENS, BLOCKS)


@triton.jit(do_not_specialize=["n"])
def count_kernel(
    index, counts, n, EXPERTS: tl.constexpr, PLACES: tl.constexpr, EXPERTS_PADDED: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Counts how many of a program's PLACES have each expert: counts [programs, EXPERTS_PADDED]."""
    first, expert = tl.program_id(0) * PLACES, tl.arange(0, EXPERTS_PADDED)
    count = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    for begin in range(0, PLACES, AT_ONCE):
        place = first + begin + tl.arange(0, AT_ONCE)
        own = (_chosen(index, place, n, EXPERTS)[None, :] == expert[:, None]) & (place < n)[None, :]
        count += tl.sum(own.to(tl.int32), 1)
    tl.store(counts + tl.program_id(0) * EXPERTS_PADDED + expert, count)


@triton.jit(do_not_specialize=["n", "n_blocks"])
def place_kernel(
    index, counts, places, begins, experts, n, n_blocks, EXPERTS: tl.constexpr,
    TOKENS: tl.constexpr, PLACES: tl.constexpr, EXPERTS_PADDED: tl.constexpr, BLOCKS: tl.constexpr,
    AT_ONCE: tl.constexpr, PROGRAMS_AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Sorts a program's places behind those of all programs before it."""
    program, expert = tl.program_id(0), tl.arange(0, EXPERTS_PADDED)
    earlier = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    count = tl.zeros((EXPERTS_PADDED,), dtype=tl.int32)
    for begin in range(0, tl.num_programs(0), PROGRAMS_AT_ONCE):
        other = begin + tl.arange(0, PROGRAMS_AT_ONCE)[:, None]
        at = counts + other * EXPERTS_PADDED + expert[None, :]
        found = tl.load(at, mask=other < tl.num_programs(0), other=0)
        count += tl.sum(found, 0)
        earlier += tl.sum(tl.where(other < program, found, 0), 0)
    start = tl.cumsum(count, 0) - count
    place = program * PLACES + tl.arange(0, PLACES)
    own = _chosen(index, place, n, EXPERTS)
    target = tl.gather(start + earlier, own, 0)
    for begin in range(0, PLACES, AT_ONCE):
        other = program * PLACES + begin + tl.arange(0, AT_ONCE)
        chosen = _chosen(index, other, n, EXPERTS)[None, :]
        is_earlier = (chosen == own[:, None]) & (other[None, :] < place[:, None])
        target += tl.sum(is_earlier.to(tl.int32), 1)
    tl.store(places + target, place.to(tl.int64), mask=place < n)
    if program == 0:
        _store_blocks(
            begins, experts, start, count, n_blocks, EXPERTS, EXPERTS_PADDED, TOKENS, BLOCKS
        )

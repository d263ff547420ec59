# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""A Triton kernel that finds the likeliest tokens of a row without sorting it.

Every row's result is a function of that row alone.
"""

import triton
import triton.language as tl


@triton.jit
def _keys(logits):
    """Unsigned integers in the order of the logits; zeros of either sign are one."""
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 == 1, ~bits, bits | 0x80000000)


@triton.jit
def _at_least(key, bound, share):
    """Their shares of the probability, and how many they are, where keys reach a bound."""
    return tl.where(key >= bound, share, 0.0), tl.where(key >= bound, 1.0, 0.0)


@triton.jit
def nucleus(logits, top_p, min_keep, size, BLOCK: tl.constexpr):
    """One program a row [size] of float32: bans all but the fewest of the likeliest tokens that
    reach top_p, and min_keep at least. Of those that tie the first ones stay.

    The least key that stays is found two bits at a time: for each a sum over the whole row.
    """
    row = tl.program_id(0).to(tl.int64)
    start_of_row = logits + row * size
    place = tl.arange(0, BLOCK)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, size, BLOCK):
        inside = start + place < size
        given = tl.load(start_of_row + start + place, mask=inside, other=float("-inf"))
        highest = tl.maximum(highest, given)
    peak = tl.max(highest, 0)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        inside = start + place < size
        given = tl.load(start_of_row + start + place, mask=inside, other=float("-inf"))
        sums += tl.exp(given - peak)
    wanted = tl.load(top_p + row) * tl.sum(sums, 0)
    least = tl.load(min_keep + row)

    one = tl.full([], 1, tl.uint32)
    found = one - one
    shift = tl.full([], 30, tl.uint32)
    for _ in range(16):
        low, middle, high = (
            found + (one << shift),
            found + (2 * one << shift),
            found + (3 * one << shift),
        )
        low_sum, low_count = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        middle_sum, middle_count = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        high_sum, high_count = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        for start in range(0, size, BLOCK):
            inside = start + place < size
            given = tl.load(start_of_row + start + place, mask=inside, other=float("-inf"))
            key = tl.where(inside, _keys(given), 0)
            share = tl.exp(given - peak)
            shares, counts = _at_least(key, low, share)
            low_sum += shares
            low_count += counts
            shares, counts = _at_least(key, middle, share)
            middle_sum += shares
            middle_count += counts
            shares, counts = _at_least(key, high, share)
            high_sum += shares
            high_count += counts
        if (tl.sum(high_sum, 0) >= wanted) & (tl.sum(high_count, 0) >= least):
            found = high
        elif (tl.sum(middle_sum, 0) >= wanted) & (tl.sum(middle_count, 0) >= least):
            found = middle
        elif (tl.sum(low_sum, 0) >= wanted) & (tl.sum(low_count, 0) >= least):
            found = low
        shift -= 2

    sums, counts = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    tied_share = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        inside = start + place < size
        given = tl.load(start_of_row + start + place, mask=inside, other=float("-inf"))
        key, share = _keys(given), tl.exp(given - peak)
        sums += tl.where(inside & (key > found), share, 0.0)
        counts += tl.where(inside & (key > found), 1.0, 0.0)
        tied_share = tl.maximum(tied_share, tl.where(inside & (key == found), share, 0.0))
    missing = tl.ceil((wanted - tl.sum(sums, 0)) / tl.max(tied_share, 0))
    staying = tl.maximum(tl.maximum(missing, least - tl.sum(counts, 0)), 1.0)
    seen = 0
    for start in range(0, size, BLOCK):
        inside = start + place < size
        given = tl.load(start_of_row + start + place, mask=inside, other=float("-inf"))
        key = _keys(given)
        tied = (inside & (key == found)).to(tl.int32)
        rank = seen + tl.cumsum(tied, 0)
        seen += tl.sum(tied, 0)
        banned = (key < found) | ((tied == 1) & (rank > staying))
        tl.store(start_of_row + start + place, float("-inf"), mask=inside & banned)

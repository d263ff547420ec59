"""Triton kernel of top-p, which sorts nothing: each row's result depends on that row alone."""

import triton
import triton.language as tl


@triton.jit
def _load(logits, start, size, BLOCK: tl.constexpr):
    """A block of a row's logits [BLOCK], and which of them are within the row."""
    index = start + tl.arange(0, BLOCK)
    mask = index < size
    return tl.load(logits + index, mask=mask, other=float("-inf")), mask


@triton.jit
def _sort_keys(logits):
    """Unsigned integers in the order of the logits; zeros of either sign are one."""
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 == 1, ~bits, bits | 0x80000000)


@triton.jit
def _max_and_sum(logits, size, BLOCK: tl.constexpr):
    """Returns a row's highest logit, and the sum of exp(logit - highest)."""
    maxima = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, size, BLOCK):
        maxima = tl.maximum(maxima, _load(logits, start, size, BLOCK)[0])
    row_max = tl.max(maxima, 0)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        sums += tl.exp(_load(logits, start, size, BLOCK)[0] - row_max)
    return row_max, tl.sum(sums, 0)


@triton.jit
def _add_from(masses, counts, key, threshold, mass):
    """Adds what keys of at least a threshold have in probability mass and in number."""
    masses += tl.where(key >= threshold, mass, 0.0)
    counts += tl.where(key >= threshold, 1.0, 0.0)
    return masses, counts


@triton.jit
def _is_enough(masses, counts, min_mass, min_keep):
    return (tl.sum(masses, 0) >= min_mass) & (tl.sum(counts, 0) >= min_keep)


@triton.jit
def _find_threshold(logits, size, row_max, min_mass, min_keep, BLOCK: tl.constexpr):
    """The highest key for which it and those above it are enough.

    It is found two bits at a time, from the highest on: for each three candidates are tried in one
    pass over the row.
    """
    one = tl.full([], 1, tl.uint32)
    found = one - one
    shift = tl.full([], 30, tl.uint32)
    for _ in range(16):
        low = found + (one << shift)
        middle = found + (2 * one << shift)
        high = found + (3 * one << shift)
        low_masses, low_counts = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        middle_masses, middle_counts = low_masses, low_counts
        high_masses, high_counts = low_masses, low_counts
        for start in range(0, size, BLOCK):
            given, mask = _load(logits, start, size, BLOCK)
            key = tl.where(mask, _sort_keys(given), 0)
            mass = tl.exp(given - row_max)
            low_masses, low_counts = _add_from(low_masses, low_counts, key, low, mass)
            middle_masses, middle_counts = _add_from(
                middle_masses, middle_counts, key, middle, mass
            )
            high_masses, high_counts = _add_from(high_masses, high_counts, key, high, mass)
        if _is_enough(high_masses, high_counts, min_mass, min_keep):
            found = high
        elif _is_enough(middle_masses, middle_counts, min_mass, min_keep):
            found = middle
        elif _is_enough(low_masses, low_counts, min_mass, min_keep):
            found = low
        shift -= 2
    return found


@triton.jit
def _count_ties(logits, size, row_max, threshold, min_mass, min_keep, BLOCK: tl.constexpr):
    """How many of the tokens whose key is the threshold have to stay."""
    masses, counts = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    tied_mass = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        given, mask = _load(logits, start, size, BLOCK)
        key, mass = _sort_keys(given), tl.exp(given - row_max)
        masses += tl.where(mask & (key > threshold), mass, 0.0)
        counts += tl.where(mask & (key > threshold), 1.0, 0.0)
        tied_mass = tl.maximum(tied_mass, tl.where(mask & (key == threshold), mass, 0.0))
    missing = tl.ceil((min_mass - tl.sum(masses, 0)) / tl.max(tied_mass, 0))
    return tl.maximum(tl.maximum(missing, min_keep - tl.sum(counts, 0)), 1.0)


@triton.jit
def _ban_below(logits, size, threshold, n_ties, BLOCK: tl.constexpr):
    """Bans keys below the threshold, and those at it behind the first `n_ties`."""
    before = 0
    for start in range(0, size, BLOCK):
        given, mask = _load(logits, start, size, BLOCK)
        key = _sort_keys(given)
        is_tied = (mask & (key == threshold)).to(tl.int32)
        rank = before + tl.cumsum(is_tied, 0)
        before += tl.sum(is_tied, 0)
        is_banned = (key < threshold) | ((is_tied == 1) & (rank > n_ties))
        index = start + tl.arange(0, BLOCK)
        tl.store(logits + index, float("-inf"), mask=mask & is_banned)


@triton.jit
def top_p_kernel(logits, top_p, min_keep, size, BLOCK: tl.constexpr):
    """One program for each row [size] of float32: bans all but the fewest of the likeliest tokens
    that reach top_p, and keeps min_keep at least. Of tokens that tie the first ones stay.
    """
    row = tl.program_id(0).to(tl.int64)
    own = logits + row * size
    row_max, row_sum = _max_and_sum(own, size, BLOCK)
    min_mass = tl.load(top_p + row) * row_sum
    least = tl.load(min_keep + row)
    threshold = _find_threshold(own, size, row_max, min_mass, least, BLOCK)
    n_ties = _count_ties(own, size, row_max, threshold, min_mass, least, BLOCK)
    _ban_below(own, size, threshold, n_ties, BLOCK)

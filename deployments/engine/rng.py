"""Draws random numbers without state: each is a function of seed, position and stream alone."""

import numpy as np
from numpy.typing import NDArray

# Streams of one seed. Each use of random numbers has its own, so that no two see the same number.
SAMPLE_STREAM = 0
XTC_STREAM = 0x7C6A1F0B5D3E9248


def stream_keys(
    seeds: NDArray[np.uint64], positions: NDArray[np.int64], stream: int
) -> NDArray[np.uint64]:
    """64 random bits for each pair of seed [n] and position [n]. [n]"""
    return mix(mix(seeds ^ np.uint64(stream)) + positions.astype(np.uint64))


def uniform(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A uniform number in [0, 1) of each key [n]. [n]"""
    result: NDArray[np.float64] = (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), for each element."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

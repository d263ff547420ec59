"""Random numbers: each is a function of (seed, position) and of what it is for, and of no state."""

import numpy as np
from numpy.typing import NDArray

# Seeds are told apart by what is drawn with them, so that no two uses see the same number.
DRAW = 0
XTC = 0x7C6A1F0B5D3E9248


def uniform(
    seeds: NDArray[np.uint64], positions: NDArray[np.int64], use: int = DRAW
) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position)."""
    mixed = mix(mix(seeds ^ np.uint64(use)) + positions.astype(np.uint64))
    result: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

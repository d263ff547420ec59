"""Brings one channel of samples to another rate, block by block."""

from fractions import Fraction
from math import ceil

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

MAX_RATIO = 1000  # rates are approximated by fractions of such numbers: by less than 1 in 10^6
ZERO_CROSSINGS = 16  # of the filter, on each side
PASSED = 0.95  # of the band below the lower rate

Floats = NDArray[np.float32]


class Resampler:
    """A resampler by a windowed sinc: one product of a matrix with all periods of the two rates."""

    def __init__(self, rate: int, new_rate: int) -> None:
        ratio = Fraction(new_rate, rate).limit_denominator(MAX_RATIO)
        self._up, self._down = ratio.numerator, ratio.denominator
        self._is_same = self._up == self._down
        cutoff = min(1.0, self._up / self._down) * PASSED
        self._half = ceil(ZERO_CROSSINGS / cutoff)
        self._width = self._down + 2 * self._half
        self._matrix = None if self._is_same else self._made(cutoff)
        self._rest = np.zeros(self._half, dtype=np.float32)
        self._n_in = self._n_out = 0

    def _made(self, cutoff: float) -> Floats:
        """[samples of a period and around it, new samples of a period]"""
        at = np.arange(self._up) * self._down / self._up + self._half
        distance = np.arange(self._width)[:, None] - at
        window = 0.5 + 0.5 * np.cos(np.pi * np.clip(distance / self._half, -1, 1))
        return (cutoff * np.sinc(cutoff * distance) * window).astype(np.float32)

    def push(self, samples: Floats) -> Floats:
        self._n_in += len(samples)
        if self._matrix is None:
            return samples
        self._rest = np.concatenate([self._rest, samples])
        n_periods = (len(self._rest) - self._width) // self._down + 1
        if n_periods < 1:
            return samples[:0]
        made: Floats = sliding_window_view(self._rest, self._width)[:: self._down] @ self._matrix
        self._rest = self._rest[n_periods * self._down :]
        self._n_out += made.size
        return made.ravel()

    def end(self) -> Floats:
        """The last samples."""
        if self._is_same:
            return self._rest[:0]
        n_left = ceil(self._n_in * self._up / self._down) - self._n_out
        n_in = self._n_in
        last = self.push(np.zeros(self._width + self._down, dtype=np.float32))
        self._n_in = n_in
        return last[: max(0, n_left)]

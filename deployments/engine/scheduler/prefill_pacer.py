"""Chooses how many tokens of prompts a step computes beside running streams, by measured times.

The model of a step's time is linear: a constant, a price for each decoding row and one for each
token of a prompt. Steps that took far longer for reasons of their own hardly count.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_OBSERVED = 32  # steps with prompts, and as many without
INITIAL_TOKENS = 64  # as long as no step had a prompt
FIT_ITERATIONS = 6
MAX_SLOWDOWN = 1.7  # of a step of streams by texts whose answers are vectors
MIN_POOLED_TOKENS = 1  # that even then are computed
REFIT_STEPS = 8  # a fit takes as long as a small model's step


class PrefillPacer:
    """Without a target prompts may have all of a step."""

    def __init__(self, target_s: float | None, min_tokens: int) -> None:
        """`target_s` is the longest that a step should take, in seconds. `min_tokens` tokens of
        prompts are computed even where streams are too slow without them."""
        self._target_s = target_s
        self._min_tokens = min_tokens
        self._alone: deque[tuple[int, int, float]] = deque(maxlen=MAX_OBSERVED)
        self._prices, self._fit_age = (0.0, 0.0, 1e-9), REFIT_STEPS
        self._mixed: deque[tuple[int, int, float]] = deque(maxlen=MAX_OBSERVED)

    def observe(self, n_decodes: int, n_tokens: int, seconds: float) -> None:
        """A step of `n_decodes` decoding rows, each drafted token counted as one, and `n_tokens`
        tokens of prompts took so long."""
        (self._mixed if n_tokens else self._alone).append((n_decodes, n_tokens, seconds))
        self._fit_age += 1

    def max_prompt_tokens(self, n_decodes: int, budget: int) -> int:
        """How many tokens of prompts a step of so many decoding rows may have, of `budget`."""
        if self._target_s is None or n_decodes == 0:
            return budget
        if not self._mixed:
            return min(budget, max(INITIAL_TOKENS, self._min_tokens))
        constant, per_row, per_token = self._fit()
        left = self._target_s - constant - per_row * n_decodes
        return min(budget, max(self._min_tokens, int(left / per_token)))

    def max_pooled_tokens(self, n_decodes: int, budget: int) -> int:
        """How many tokens of texts whose answers are vectors such a step may have: there may be
        thousands of them, and no stream should notice."""
        if n_decodes == 0:
            return budget
        if not (self._mixed and self._alone):
            return min(budget, self._min_tokens)
        if self._fit_age >= REFIT_STEPS:
            self._prices, self._fit_age = self._fit(), 0
        constant, per_row, per_token = self._prices
        left = (MAX_SLOWDOWN - 1) * (constant + per_row * n_decodes)
        return min(budget, max(MIN_POOLED_TOKENS, int(left / per_token)))

    def _fit(self) -> tuple[float, float, float]:
        """Seconds for a step, a row and a token; the last is above 0."""
        observed = np.array([*self._alone, *self._mixed], dtype=np.float64)
        factors, seconds = np.insert(observed[:, :2], 0, 1.0, axis=1), observed[:, 2]
        constant, per_row, per_token = _least_deviations(factors, seconds).tolist()
        return constant, per_row, max(per_token, 1e-9)


def _least_deviations(factors: Floats, seconds: Floats) -> Floats:
    """Prices [factors] with the least sum of absolute errors, so that a few large errors hardly
    count. By iteratively reweighted least squares; `factors` is [steps, factors]."""
    weights = np.ones(len(seconds))
    for _ in range(FIT_ITERATIONS):
        price = _least_squares(factors * weights[:, None], seconds * weights)
        error = np.abs(factors @ price - seconds)
        weights = 1 / np.sqrt(np.maximum(error, 0.1 * np.median(error) + 1e-6))
    return price


def _least_squares(factors: Floats, seconds: Floats) -> Floats:
    """Prices of the least squares, of which those that would be negative are 0."""
    price = np.zeros(factors.shape[1])
    used = np.ones(len(price), dtype=bool)
    while used.any():
        price[:] = 0
        price[used] = np.linalg.lstsq(factors[:, used], seconds, rcond=None)[0]
        if (price >= 0).all():
            break
        used &= price > 0
    return price

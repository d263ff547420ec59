"""Chooses how many tokens of prompts a step computes beside running streams, from measured times.

A step's time is taken for a constant, so much a decoding row and so much a token of a prompt; steps
that took far longer than that, for reasons of their own, are left out of the account.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REMEMBERED = 32  # steps with prompts, and as many without
FIRST = 64  # tokens, as long as no step had a prompt
ROUNDS = 6


class Pace:
    """Without a target prompts may have all of a step."""

    def __init__(self, target_s: float | None, least: int) -> None:
        """`least` tokens of prompts are computed even where streams are too slow without them."""
        self._target_s = target_s
        self._least = least
        self._alone: deque[tuple[int, int, float]] = deque(maxlen=REMEMBERED)
        self._mixed: deque[tuple[int, int, float]] = deque(maxlen=REMEMBERED)

    def observe(self, n_decodes: int, n_tokens: int, seconds: float) -> None:
        """A step of so many decoding rows, drafted tokens among them, and tokens of prompts took so
        long."""
        if self._target_s is not None:
            (self._mixed if n_tokens else self._alone).append((n_decodes, n_tokens, seconds))

    def tokens_beside(self, n_decodes: int, budget: int) -> int:
        """How many of `budget` tokens of prompts may be computed beside so many decoding rows."""
        if self._target_s is None or n_decodes == 0:
            return budget
        if not self._mixed:
            return min(budget, max(FIRST, self._least))
        constant, per_row, per_token = self._fit()
        left = self._target_s - constant - per_row * n_decodes
        return min(budget, max(self._least, int(left / per_token)))

    def _fit(self) -> tuple[float, float, float]:
        """Seconds a step, a row and a token; the last is above 0."""
        seen = np.array([*self._alone, *self._mixed], dtype=np.float64)
        factors, seconds = np.insert(seen[:, :2], 0, 1.0, axis=1), seen[:, 2]
        constant, per_row, per_token = _least_deviations(factors, seconds).tolist()
        return constant, per_row, max(per_token, 1e-9)


def _least_deviations(factors: Floats, seconds: Floats) -> Floats:
    """Prices whose errors are least in sum, and not in squares: a few large ones do not count."""
    weights = np.ones(len(seconds))
    for _ in range(ROUNDS):
        price = _least_squares(factors * weights[:, None], seconds * weights)
        error = np.abs(factors @ price - seconds)
        weights = 1 / np.sqrt(np.maximum(error, 0.1 * np.median(error) + 1e-6))
    return price


def _least_squares(factors: Floats, seconds: Floats) -> Floats:
    """The least prices that explain the times, none below 0."""
    price = np.zeros(factors.shape[1])
    used = np.ones(len(price), dtype=bool)
    while used.any():
        price[:] = 0
        price[used] = np.linalg.lstsq(factors[:, used], seconds, rcond=None)[0]
        if (price >= 0).all():
            break
        used &= price > 0
    return price

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
REFIT_STEPS = 8  # a fit takes as long as a small model's step

MAX_SLOWDOWN = 1.7  # of a step of streams by pooling tasks
MIN_POOLING_TOKENS = 1  # that even then are computed
# Their share grows by these, until a step took too long and later. Then it is halved.
FIRST_GROWTH, GROWTH = 1.25, 1.05
REFRESH_STEPS = 64  # after which a step has no prompt, to time it


class PrefillPacer:
    """The pace of prompts beside streams. Without a target they may have all of a step."""

    def __init__(self, target_s: float | None, min_tokens: int) -> None:
        """`target_s` is the longest that a step should take, in seconds. `min_tokens` tokens of
        prompts are computed even where streams are too slow without them."""
        self._target_s = target_s
        self._min_tokens = min_tokens
        self._alone: deque[tuple[int, int, float]] = deque(maxlen=MAX_OBSERVED)
        self._mixed: deque[tuple[int, int, float]] = deque(maxlen=MAX_OBSERVED)
        self._pooling_share = PoolingShare()

    def observe(self, n_decodes: int, n_tokens: int, seconds: float) -> None:
        """A step of `n_decodes` decoding rows, each drafted token counted as one, and `n_tokens`
        tokens of prompts took so long."""
        if n_tokens and n_decodes:
            self._pooling_share.observe(n_decodes, n_tokens, seconds)
        elif n_decodes:
            self._pooling_share.observe_alone(n_decodes, seconds)
        (self._mixed if n_tokens else self._alone).append((n_decodes, n_tokens, seconds))

    def max_prompt_tokens(self, n_decodes: int, budget: int) -> int:
        """How many tokens of prompts a step of so many decoding rows may have, of `budget`."""
        if self._target_s is None or n_decodes == 0:
            return budget
        if not self._mixed:
            return min(budget, max(INITIAL_TOKENS, self._min_tokens))
        constant, per_row, per_token = self._fit()
        left = self._target_s - constant - per_row * n_decodes
        return min(budget, max(self._min_tokens, int(left / per_token)))

    def max_pooling_tokens(self, n_decodes: int, budget: int, *, has_prompts: bool) -> int:
        """How many tokens of pooling tasks such a step may have: there may be thousands of these
        tasks, and no stream should notice. `has_prompts`: of others, too."""
        if n_decodes == 0:
            return budget
        return min(budget, self._pooling_share.max_tokens(n_decodes, has_prompts=has_prompts))

    def _fit(self) -> tuple[float, float, float]:
        """Seconds for a step, a row and a token; the last is above 0."""
        observed = np.array([*self._alone, *self._mixed], dtype=np.float64)
        factors, seconds = np.insert(observed[:, :2], 0, 1.0, axis=1), observed[:, 2]
        constant, per_row, per_token = _least_deviations(factors, seconds).tolist()
        return constant, per_row, max(per_token, 1e-9)


class PoolingShare:
    """The share that pooling tasks get of steps with streams.

    The first token of a chunk costs far more than the next ones, and steps with as many tokens each
    do not say how much. So the share grows until a step takes too long beside one without prompts.
    It is in tokens a second of such a step: steps of few streams are short, and get few.
    """

    def __init__(self) -> None:
        self._alone: deque[tuple[int, float]] = deque(maxlen=MAX_OBSERVED)
        self._prices, self._n_new = (0.0, 0.0), 0  # steps alone since they were found
        self._since_alone = 0
        self._offered = 0  # of the step that is planned; 0 where it has no pooling task
        self._share, self._growth = 0.0, FIRST_GROWTH

    def max_tokens(self, n_decodes: int, *, has_prompts: bool) -> int:
        """Returns how many tokens of pooling tasks a step may have: 0 where a step without prompts
        is to be timed, which one with prompts of others is not in any case."""
        if not self._alone:
            return MIN_POOLING_TOKENS if has_prompts else 0
        if self._since_alone >= REFRESH_STEPS and not has_prompts:
            return 0
        wanted = int(self._share * self._seconds_alone(n_decodes))
        self._offered = max(MIN_POOLING_TOKENS, wanted)
        return self._offered

    def observe_alone(self, n_decodes: int, seconds: float) -> None:
        """A step of so many rows and no prompt took so long."""
        self._alone.append((n_decodes, seconds))
        self._since_alone = self._offered = 0
        self._n_new += 1

    def observe(self, n_decodes: int, n_tokens: int, seconds: float) -> None:
        """A step of so many rows and tokens of prompts, perhaps not of pooling tasks alone."""
        self._since_alone += 1
        offered, self._offered = self._offered, 0
        if not offered:
            return
        alone = self._seconds_alone(n_decodes)
        if seconds > MAX_SLOWDOWN * alone:
            if n_tokens <= offered:
                self._share, self._growth = n_tokens / alone / 2, GROWTH
        elif n_tokens >= offered:
            self._share = max(self._share, offered / alone) * self._growth

    def _seconds_alone(self, n_decodes: int) -> float:
        """Returns the seconds of a step without prompts, and not too many where none of so many
        rows was timed."""
        # The first ones say too little to keep what was found: of one number of rows nothing says
        # what one more takes.
        if self._n_new >= REFIT_STEPS or (self._n_new and len(self._alone) <= REFIT_STEPS):
            observed = np.array(self._alone, dtype=np.float64)
            factors = np.insert(observed[:, :1], 0, 1.0, axis=1)
            constant, per_row = _least_deviations(factors, observed[:, 1]).tolist()
            self._prices, self._n_new = (constant, per_row), 0
        constant, per_row = self._prices
        most = max(rows for rows, _ in self._alone)
        return max(constant + per_row * min(n_decodes, most), 1e-9)


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

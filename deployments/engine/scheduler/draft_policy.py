"""Decides how many tokens to draft by a model: as many as pay, by measured times and by how often
drafts were right.

A draft of k tokens costs k passes of the draft model and a step with k more tokens for each row.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_OBSERVED, MIN_OBSERVED = 16, 3  # times of each size
# Steps with drafts after which one has none, to time it: while few were timed, and later.
FIRST_REFRESH, REFRESH = 4, 64
MAX_AGE = 8  # steps that costs are taken for true
MIN_GAIN = 1.05  # tokens a second with drafts, to those without
MAX_RATE = 0.99
NGRAM_RATE = 0.8  # how often a token that an n-gram says is taken to be right
PRIOR_RATE = 0.8  # how often a draft model is taken to be right where nothing is known
# Steps without drafts after which they are tried again, and how many tokens then.
FIRST_RETRY, LAST_RETRY, TRIED_TOKENS = 64, 8192, 2
MEMORY = 0.95  # of the mean acceptance, in each step
# Of how often tokens of each position were right, for each further draft; and the tokens that the
# mean acceptance counts as there.
POSITION_MEMORY, POSITION_PRIOR = 0.99, 5.0


class SecondsBySize:
    """Lower quartiles of the last times of each size: what else the machine does, and kernels that
    are compiled first, only ever add to them."""

    def __init__(self) -> None:
        self._observed: dict[int, deque[float]] = {}

    def observe(self, size: int, seconds: float) -> None:
        self._observed.setdefault(size, deque(maxlen=MAX_OBSERVED)).append(seconds)

    def estimate(self, size: int) -> float | None:
        """Returns seconds of the largest known size up to this: what was never tried shall be."""
        known = [tried for tried in self._observed if tried <= size and self.knows(tried)]
        if not known:
            return None
        observed = sorted(self._observed[max(known)])
        return observed[len(observed) // 4]

    def n_observed(self, size: int) -> int:
        return len(self._observed.get(size, ()))

    def knows(self, size: int) -> bool:
        return self.n_observed(size) >= MIN_OBSERVED


class RightByPosition:
    """How often the first, the second, ... token of drafts is right where those before it are. What
    was not tried for long is taken to be as right as all are."""

    def __init__(self) -> None:
        self._right, self._tried = np.zeros((2, 0))

    def observe(self, n_drafted: int, n_right: int) -> None:
        if n_drafted > len(self._tried):
            more = np.zeros(n_drafted - len(self._tried))
            self._right = np.append(self._right, more)
            self._tried = np.append(self._tried, more)
        self._right *= POSITION_MEMORY
        self._tried *= POSITION_MEMORY
        self._right[:n_right] += 1
        self._tried[: min(n_right + 1, n_drafted)] += 1

    def shares(self, n: int, mean: float) -> list[float]:
        """Returns how right the first `n` positions are, in shares of the mean. [n]"""
        right, tried = np.full(n, POSITION_PRIOR * mean), np.full(n, POSITION_PRIOR)
        known = min(n, len(self._tried))
        right[:known] += self._right[:known]
        tried[:known] += self._tried[:known]
        shares: list[float] = (right / tried / max(mean, 1e-9)).tolist()
        return shares


class DraftPolicy:
    def __init__(self, is_forced: bool = False) -> None:
        """`is_forced`: as many tokens as there may be, whether or not that pays."""
        self._is_forced = is_forced
        self._steps, self._passes = SecondsBySize(), SecondsBySize()
        self._reads = SecondsBySize()  # of a token, all under one size
        # Steps by their rows: without drafts since one was tried, with drafts since one had none.
        self._skipped: Counter[int] = Counter()
        self._since_plain: Counter[int] = Counter()
        self._retry_after: dict[int, int] = {}
        self._n_steps = 0
        self._costs: dict[tuple[int, int], _Costs] = {}
        self._by_position = RightByPosition()
        self.rate = PRIOR_RATE  # mean of all sequences that were drafted for

    def observe_step(self, n_rows: int, n_tokens: int, seconds: float) -> None:
        """A step without prompts took so long, drafting left out. It had a token of each of its
        rows, and drafted ones."""
        self._n_steps += 1
        self._steps.observe(n_tokens, seconds)
        if n_tokens == n_rows:
            self._skipped[n_rows] += 1
            self._since_plain[n_rows] = 0
        else:
            self._since_plain[n_rows] += 1

    def observe_passes(self, n_rows: int, n_passes: int, seconds: float) -> None:
        """So many passes of the draft model over single tokens of `n_rows` rows took so long."""
        self._passes.observe(n_rows, seconds / n_passes)

    def observe_read(self, n_tokens: int, seconds: float) -> None:
        """The draft model has read so many tokens of sequences that it did not know yet."""
        self._reads.observe(1, seconds / n_tokens)

    def is_worth_reading(
        self, n_unread: int, n_said: int, rate: float, n_rows: int, n_max: int
    ) -> bool:
        """Whether the draft model is to read so many tokens of a sequence, which has said `n_said`
        by now. How many are to come nobody knows: it is taken to say as many again."""
        if self._is_forced:
            return True
        plain, gain = self._steps.estimate(n_rows) or 0.0, self._costs_of(n_rows, n_max).gain(rate)
        saved = n_said * plain / n_rows * (1 - 1 / gain)
        return bool(n_unread * (self._reads.estimate(1) or 0.0) <= saved)

    def observe_rates(self, rates: Sequence[float]) -> None:
        self.rate = MEMORY * self.rate + (1 - MEMORY) * sum(rates) / len(rates)

    def observe_draft(self, n_drafted: int, n_right: int) -> None:
        """So many tokens were drafted for a sequence, and the first ones of them right."""
        self._by_position.observe(n_drafted, n_right)

    def may_draft(self, n_rows: int, n_max: int) -> bool:
        """Whether a step of so many rows is to have drafts of up to `n_max` tokens."""
        if self._is_forced:
            return True
        if n_max <= 0 or self.needs_plain_step(n_rows):
            return False
        return self._costs_of(n_rows, n_max).pays or self._is_due(n_rows)

    def needs_plain_step(self, n_rows: int) -> bool:
        """Whether a step of so many rows without drafts has to be timed."""
        if self._is_forced:
            return False
        if not self._steps.knows(n_rows):
            return True
        is_well_known = self._steps.n_observed(n_rows) == MAX_OBSERVED
        return self._since_plain[n_rows] >= (REFRESH if is_well_known else FIRST_REFRESH)

    def lengths(self, rates: Sequence[float], n_rows: int, n_max: int) -> list[int]:
        """How many tokens to draft for sequences whose drafts were right so often [sequences], in a
        step of `n_rows` rows that may be drafted for."""
        if self._is_forced:
            return [n_max] * len(rates)
        costs = self._costs_of(n_rows, n_max)
        if not costs.pays:
            self._skipped[n_rows] = 0
            before = self._retry_after.get(n_rows, FIRST_RETRY // 2)
            self._retry_after[n_rows] = min(2 * before, LAST_RETRY)
            return [min(TRIED_TOKENS, n_max)] * len(rates)
        self._retry_after.pop(n_rows, None)
        return [costs.best(rate) for rate in rates]

    def longest_ngram(self, n_rows: int, n_max: int) -> int:
        """How many tokens to draft at most where guesses cost nothing."""
        return n_max if self._is_forced else self._costs_of(n_rows, n_max).longest_ngram

    def _is_due(self, n_rows: int) -> bool:
        return self._skipped[n_rows] >= self._retry_after.get(n_rows, FIRST_RETRY)

    def _costs_of(self, n_rows: int, n_max: int) -> "_Costs":
        costs = self._costs.get((n_rows, n_max))
        if costs is None or self._n_steps - costs.n_steps >= MAX_AGE:
            costs = self._costs[n_rows, n_max] = self._new_costs(n_rows, n_max)
        return costs

    def _new_costs(self, n_rows: int, n_max: int) -> "_Costs":
        plain, one_pass = self._steps.estimate(n_rows) or 1e-9, self._passes.estimate(n_rows) or 0.0
        steps = [self._steps.estimate(n_rows * (1 + k)) or plain for k in range(1, n_max + 1)]
        by_length = [(step + k * one_pass) / plain for k, step in enumerate(steps, 1)]
        shares = self._by_position.shares(n_max, self.rate)
        longest, _ = _best(NGRAM_RATE, [1.0] * n_max, [step / plain for step in steps])
        pays = _best(self.rate, shares, by_length)[1] >= MIN_GAIN
        return _Costs(self._n_steps, by_length, shares, max(longest, 1), pays)


@dataclass(frozen=True, slots=True)
class _Costs:
    n_steps: int  # when they were found
    by_length: Sequence[float]  # of steps with drafts of 1, 2, ... tokens, in steps without
    right_by_position: Sequence[float]  # as `RightByPosition.shares`
    longest_ngram: int
    pays: bool

    def best(self, rate: float) -> int:
        """The length that pays most for a sequence whose drafts are right so often; or 0."""
        return _best(rate, self.right_by_position, self.by_length)[0]

    def gain(self, rate: float) -> float:
        return _best(rate, self.right_by_position, self.by_length)[1]


def _best(
    rate: float, right_by_position: Sequence[float], by_length: Sequence[float]
) -> tuple[int, float]:
    """The length by which there are most tokens a second, and how many, to those without drafts.
    The length is 0 where they are fewer. Written out, as numpy takes longer for so few numbers."""
    length, best, n_tokens, right = 0, 0.0, 1.0, 1.0
    for k, (share, cost) in enumerate(zip(right_by_position, by_length, strict=True), 1):
        right *= min(max(rate * share, 0.0), MAX_RATE)
        n_tokens += right
        if n_tokens > best * cost:
            length, best = k, n_tokens / cost
    return length if best >= 1 else 0, best

"""The drafts of one sequence: what it said before or what a draft model says, then what its
constraint leaves it to say.

A guess that can't follow is dropped, with all behind it. Text that must come next may be
spelled in other tokens by the model, so such a draft is a guess as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from deployments.engine.tasks.constraint import Constraint
from deployments.engine.tasks.ngram_drafts import NgramIndex, Trust
from kv.arrays import IntArray

PRIOR_TRIED = 5.0  # tokens that what is expected of a draft model counts as
MEMORY = 0.9  # of what is known of how right it was, for each further draft
RETURN = 0.02  # to the mean, for each token that nothing was drafted for


@dataclass(slots=True)
class Acceptance:
    """How often the tokens of a draft model are right, where those before them were."""

    right: float = 0.0
    tried: float = 0.0

    def expect(self, rate: float) -> None:
        """Begins with what is known of others, if nothing is known of this one."""
        if not self.tried:
            self.right, self.tried = rate * PRIOR_TRIED, PRIOR_TRIED

    @property
    def rate(self) -> float:
        return self.right / self.tried

    def forget(self, mean: float) -> None:
        """Nothing is drafted: in time it is taken for a sequence as others are."""
        self.right += RETURN * self.tried * (mean - self.rate)

    def learn(self, n_drafted: int, n_right: int) -> None:
        self.right = MEMORY * self.right + n_right
        self.tried = MEMORY * self.tried + min(n_right + 1, n_drafted)


@dataclass(slots=True)
class Drafts:
    ngrams: NgramIndex = field(default_factory=NgramIndex)
    of_model: Acceptance = field(default_factory=Acceptance)
    forced: Trust = field(default_factory=Trust)  # in tokens that a constraint leaves
    n_guessed: int = 0  # of the last draft's tokens; the others are forced
    is_of_model: bool = False  # who guessed them
    # Tokens of the last guess, and how many of them were right, for whoever decides about lengths.
    outcome: tuple[int, int] | None = None
    n_read: int = 0  # tokens whose keys and values of the draft model are in the cache
    n_untold: int = 0  # drafted tokens that no event tells of yet
    n_untold_right: int = 0  # of these

    def take_untold(self) -> tuple[int, int]:
        """How many tokens were drafted since the last event, and how many of them were right."""
        untold = self.n_untold, self.n_untold_right
        self.n_untold = self.n_untold_right = 0
        return untold

    def take_outcome(self) -> tuple[int, int] | None:
        outcome, self.outcome = self.outcome, None
        return outcome

    def propose(
        self, tokens: IntArray, n: int, n_max: int, constraint: Constraint
    ) -> Sequence[int]:
        """Up to `n_max` tokens that may follow the first `n` of `tokens`, by its n-grams."""
        guess: list[int] = self.ngrams.propose(tokens, n, n_max).tolist()
        self.is_of_model = False
        return self._completed(guess, n, n_max, constraint)

    def take_guess(
        self, guess: Sequence[int], n: int, n_max: int, constraint: Constraint
    ) -> Sequence[int]:
        """The same of a draft model's guess."""
        self.is_of_model = True
        return self._completed(guess, n, n_max, constraint)

    def _completed(
        self, guess: Sequence[int], n: int, n_max: int, constraint: Constraint
    ) -> Sequence[int]:
        n_forced = self.forced.limit(n, n_max)
        drafted, self.n_guessed = constraint.draft(guess, n_max, n_forced)
        return drafted

    def learn(self, n_drafted: int, n_right: int, n: int) -> None:
        """The first `n_right` of the tokens drafted last were sampled; `n` tokens are known now."""
        n_guessed = min(self.n_guessed, n_drafted)
        if n_guessed and self.is_of_model:
            self.outcome = n_guessed, min(n_right, n_guessed)
            self.of_model.learn(*self.outcome)
        elif n_guessed:
            self.ngrams.learn(n_guessed, min(n_right, n_guessed), n)
        if n_drafted > n_guessed and n_right >= n_guessed:
            self.forced.learn(n_drafted - n_guessed, n_right - n_guessed, n)

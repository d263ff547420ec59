"""What is drafted for one sequence: what it said before, then what its grammar leaves it to say.

A guess that the grammar forbids is dropped, with all behind it. Text that must come next may be
spelled in other tokens by the model, so such a draft is a guess as well.
"""

from collections.abc import Set
from dataclasses import dataclass, field

from deployments.engine.tasks.grammar_matcher import Grammar
from deployments.engine.tasks.ngram_drafts import NgramIndex, Trust
from kv.arrays import IntArray


@dataclass(slots=True)
class Drafts:
    ngrams: NgramIndex = field(default_factory=NgramIndex)
    forced: Trust = field(default_factory=Trust)  # in tokens that a grammar leaves
    n_guessed: int = 0  # of the last draft's tokens; the others are forced

    def propose(
        self, tokens: IntArray, n: int, n_max: int, grammar: Grammar | None, ends: Set[int]
    ) -> list[int]:
        """Up to `n_max` tokens that may follow the first `n` of `tokens`. A grammar's draft holds
        none of the tokens that would end the sequence."""
        guess: list[int] = self.ngrams.propose(tokens, n, n_max).tolist()
        self.n_guessed = len(guess)
        if grammar is None:
            return guess
        guess = _before_any(ends, guess)
        drafted, self.n_guessed = grammar.draft(guess, n_max, self.forced.limit(n, n_max))
        return _before_any(ends, drafted)

    def learn(self, n_drafted: int, n_right: int, n: int) -> None:
        """The first `n_right` of the tokens drafted last were sampled; `n` tokens are known now."""
        n_guessed = min(self.n_guessed, n_drafted)
        if n_guessed:
            self.ngrams.learn(n_guessed, min(n_right, n_guessed), n)
        if n_drafted > n_guessed and n_right >= n_guessed:
            self.forced.learn(n_drafted - n_guessed, n_right - n_guessed, n)


def _before_any(ends: Set[int], token_ids: list[int]) -> list[int]:
    n = next((i for i, token_id in enumerate(token_ids) if token_id in ends), len(token_ids))
    return token_ids[:n]

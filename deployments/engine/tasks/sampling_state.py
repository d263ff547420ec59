"""The state of one task that sampling strategies keep between steps: a function of its tokens."""

from dataclasses import dataclass

from deployments.engine.tasks.repetitions import Repetitions
from deployments.engine.tasks.thinking_tracker import ThinkingTracker
from deployments.engine.tasks.token_counts import TokenCounts

# Last tokens of bad words, by the bytes of the tokens before them, by the number of these tokens.
BadWords = dict[int, dict[bytes, list[int]]]


@dataclass(slots=True)
class SamplingState:
    """Each part is made by the strategy that needs it, when it needs it first.

    mirostat_mu: in bits. It may be ahead of the last known token while a step is in progress.
    committed_mu: what it was after the last known token.
    is_thinking_over: thinking ends whatever is left of its budget.
    """

    non_default: frozenset[str] | None = None  # names of fields of SamplingParams
    token_counts: TokenCounts | None = None
    repetitions: Repetitions | None = None
    mirostat_mu: float | None = None
    committed_mu: float | None = None
    bad_words: BadWords | None = None
    thinking: ThinkingTracker | None = None
    is_thinking_over: bool = False

    def commit(self) -> None:
        """The token that was sampled last belongs to the task now."""
        self.committed_mu = self.mirostat_mu

    def rewind(self) -> None:
        """Undoes the step in progress. What follows from tokens is found anew."""
        self.mirostat_mu = self.committed_mu
        self.token_counts = self.repetitions = self.thinking = None

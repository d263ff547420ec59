"""The result of a step: the runner makes it, the scheduler takes it in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from deployments.contract.events import TokenLogprob
from deployments.engine.sampling.sampler import Sample
from deployments.engine.tasks.pooled import PooledChunk


@dataclass(frozen=True, slots=True)
class StepResult:
    """The results of a step for each row of its batch."""

    samples: Sequence[Sequence[Sample]]  # [rows]; more than one for a row whose drafts were right
    prompt_logprobs: Mapping[int, Sequence[TokenLogprob]]  # by row, of the prompt's next tokens
    # Rows whose last token is to be computed again: what may follow it was not known in time.
    late_rows: frozenset[int] = frozenset()
    # Rows that were launched ahead in vain and are to be computed again: the token before them was
    # refused, or a constraint was not ready for it or for what follows it.
    stale_rows: frozenset[int] = frozenset()
    pooled: Mapping[int, PooledChunk] = field(default_factory=dict)  # by row, of vectors

    def is_finite(self, row: int) -> bool:
        """Whether the model's output was finite, as far as anything was made of it."""
        sampled = all(
            sample.token_id is not None or sample.is_all_banned for sample in self.samples[row]
        )
        return sampled and not any(
            isnan(token.logprob) for token in self.prompt_logprobs.get(row, ())
        )

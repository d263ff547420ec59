"""What a step is for: rows of (task, n tokens). The scheduler makes it, and the runner reads it."""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.engine.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Rows:
    """What a step is for: of each task the next `n` uncomputed tokens, drafted ones too."""

    tasks: Sequence[Task]
    n: Sequence[int]

    @property
    def n_prompts(self) -> int:
        """Tokens of prompts, which neither draw alone nor are drafted."""
        paired = zip(self.tasks, self.n, strict=True)
        return sum(n for task, n in paired if n != 1 + task.n_drafted)

    def drawing(self) -> list[int]:
        """Places of those that reach their last known token, so that the next one is drawn; once
        more for each drafted token, to draw what is behind it."""
        return [
            place
            for place, (task, n) in enumerate(zip(self.tasks, self.n, strict=True))
            if n >= task.n_tokens - task.n_computed and task.n_tokens < task.n_limit
            for _ in range(1 + task.n_drafted)
        ]

    def left(self) -> "Rows":
        """Without those that ended in flight."""
        left = [place for place, task in enumerate(self.tasks) if not task.has_ended]
        return Rows([self.tasks[place] for place in left], [self.n[place] for place in left])

    def scored(self) -> dict[int, int]:
        """By place, positions whose next tokens are of the prompt and wait for their logprobs."""
        wanting = [
            place
            for place, task in enumerate(self.tasks)
            if task.request.prompt_logprobs is not None and task.n_unscored
        ]
        # After a preemption some are computed again that were scored before.
        known = {place: len(self.tasks[place].prompt_logprobs) for place in wanting}
        behind = {
            place: min(
                self.tasks[place].n_computed + self.n[place] - n, self.tasks[place].n_unscored
            )
            for place, n in known.items()
        }
        return {place: n for place, n in behind.items() if n > 0}

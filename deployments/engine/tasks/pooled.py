"""The results so far of a pooling task, whose answer is vectors and no tokens, chunk by chunk."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from deployments.contract.outputs import Pooling, Vectors

# Poolings that read the hidden states of tokens that a prefix cache would skip.
NEED_ALL_TOKENS = frozenset({Pooling.CLS, Pooling.MEAN, Pooling.TOKEN})


@dataclass(frozen=True, slots=True)
class PooledChunk:
    """The results that a step has added to a pooling task.

    carried: for the task's next chunk, [hidden]: the sum of its hidden states so far, or the first
        one; of a transcript to align, what its tokens so far attend to [heads, tokens, states].
    vectors: of its tokens, or its answer; None: there are none yet.
    """

    carried: Tensor | None = None
    vectors: Vectors | None = None
    is_finite: bool = True


@dataclass(slots=True)
class Pooled:
    """The results of one pooling task so far.

    pooling: None where the answer is made of logits, or of attention if it `aligns`.
    """

    pooling: Pooling | None
    aligns: bool = False
    carried: Tensor | None = None
    parts: list[Vectors] = field(default_factory=list)

    @property
    def needs_all_tokens(self) -> bool:
        return self.aligns or self.pooling in NEED_ALL_TOKENS

    @property
    def n_vectors(self) -> int:
        return sum(part.n for part in self.parts)

    def add(self, chunk: PooledChunk) -> None:
        self.carried = chunk.carried
        if chunk.vectors is not None:
            self.parts.append(chunk.vectors)

    def take(self) -> Sequence[Vectors]:
        taken, self.parts = self.parts, []
        return taken

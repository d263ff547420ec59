"""The answers of a model, and the modules behind its layers that make them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn

from deployments.contract.outputs import AnswerKinds, Pooling


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """dense: behind the model's own pooling, one after the other.
    head: makes the logits of labels [n, labels] of pooled hidden states [n, hidden]; None: the
        logits behind a prompt's last token are those of its labels, if it has any.
    head_pooling: what the head reads.
    is_encoder: tokens attend to those behind them, too, so that a prompt is computed at once.
    can_align: it tells when the tokens of a transcript are heard.
    """

    kinds: AnswerKinds = field(default_factory=AnswerKinds)
    dense: nn.Sequential | None = None
    head: Callable[[Tensor], Tensor] | None = None
    head_pooling: Pooling = Pooling.LAST
    is_encoder: bool = False
    can_align: bool = False

    @property
    def has_labels(self) -> bool:
        return bool(self.kinds.labels)

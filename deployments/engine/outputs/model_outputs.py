"""The answers of a model, and the modules behind its layers that make them.

The loader finds them out and gives them to the model, where the engine finds them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.contract.outputs import AnswerKinds, ModelTask, Pooling
from deployments.engine.forward.by_rows import by_rows
from deployments.engine.forward.cross_attention import alignment_heads, is_encoder_decoder

OUTPUTS = "paged_outputs"  # attribute of a model: its `ModelOutputs`


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

    def to(self, device: torch.device | str) -> None:
        """Moves what is not a part of the model itself."""
        if self.dense is not None:
            self.dense.to(device)


def outputs_of(model: PreTrainedModel) -> ModelOutputs:
    """Returns the model's outputs: those of a generator where nobody has looked at the model."""
    found: ModelOutputs = getattr(model, OUTPUTS, None) or ModelOutputs()
    kinds = found.kinds
    if kinds.task is ModelTask.GENERATE or kinds.can_generate:
        hidden: int = getattr(model.config.get_text_config(decoder=True), "hidden_size", 0)
        can_embed = bool(hidden) and by_rows(model) is None and not is_encoder_decoder(model)
        size = kinds.embedding_size or hidden
        found = replace(
            found,
            kinds=replace(kinds, can_embed=can_embed, embedding_size=size * can_embed),
            can_align=bool(alignment_heads(model)),
        )
    return found


def is_encoder(model: PreTrainedModel) -> bool:
    found: ModelOutputs | None = getattr(model, OUTPUTS, None)
    return found is not None and found.is_encoder

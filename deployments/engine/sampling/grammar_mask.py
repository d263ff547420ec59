"""Bans every token that a row's grammar does not allow next."""

import numpy as np
import torch
from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, BaseSamplingStrategy
from deployments.engine.tasks.grammar_drafts import Bitmask
from deployments.engine.transfer import to_device


class GrammarStrategy(BaseSamplingStrategy):
    """Collects the masks, whose computation began before the forward pass."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        grammars = {
            row: active
            for row in rows.selected
            if (active := rows.tasks[row].active_grammar) is not None
        }
        if grammars:
            index = to_device(np.array([*grammars], dtype=np.int64), logits.device)
            masks = np.stack(
                [grammar.mask(rows.n_drafted_before(row)) for row, grammar in grammars.items()]
            )
            logits[index] = logits[index].masked_fill_(~_allowed(masks, logits), BANNED)


def _allowed(masks: Bitmask, logits: Tensor) -> Tensor:
    """The bits of the masks [rows, vocab / 32] as one bool a logit. [rows, vocab]"""
    vocab = logits.shape[1]
    octets = to_device(masks.view(np.uint8), logits.device)  # [rows, vocab / 8]
    bits = octets[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=logits.device) & 1
    allowed = bits.flatten(1)[:, :vocab].bool()
    return torch.nn.functional.pad(allowed, (0, vocab - allowed.shape[1]))

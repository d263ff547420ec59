"""Leaves each row the tokens that its grammar allows next, and no others."""

import numpy as np
import torch
from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import NEVER, SamplingStrategy
from deployments.engine.tasks.grammar_matcher import Bitmask
from deployments.engine.transfer import to_device


class GrammarStrategy(SamplingStrategy):
    """The masks were begun before the model ran; they are collected here."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        held = {row: one for row in rows.chosen if (one := rows.tasks[row].grammar) is not None}
        if held:
            places = to_device(np.array([*held], dtype=np.int64), logits.device)
            masks = np.stack([grammar.mask() for grammar in held.values()])
            logits[places] = logits[places].masked_fill_(~_allowed(masks, logits), NEVER)


def _allowed(masks: Bitmask, logits: Tensor) -> Tensor:
    """The bits of the masks, one for each logit. [rows, vocab] of bool"""
    vocab = logits.shape[1]
    octets = to_device(masks.view(np.uint8), logits.device)  # [rows, vocab / 8]
    bits = octets[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=logits.device) & 1
    allowed = bits.flatten(1)[:, :vocab].bool()
    return torch.nn.functional.pad(allowed, (0, vocab - allowed.shape[1]))

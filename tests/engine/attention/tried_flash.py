"""Steps whose chunks are tried on a stand-in for FlashAttention, in a process of their own."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from deployments.engine.attention import flash
from deployments.engine.attention.flash import FlashAttention
from deployments.engine.attention.gpu import TritonAttention
from tests.engine.kernels.gpu.paged import Case, lay_out


class TriedStep(FlashAttention):
    """Our own kernel in the place of FlashAttention, wrong or failing from some call on."""

    asked = 0
    wrong_by = 0.0
    errors: ClassVar[list[Exception | None]] = []

    def _attend_with_flash(self, attention: Any, q: Tensor) -> Tensor:
        TriedStep.asked += 1
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        ours = TritonAttention._attend_chunks(self, attention, torch.zeros_like(q), q)
        return ours * (1 + self.wrong_by)


def tried(
    case: Case, wrong_by: float = 0.0, errors: list[Exception | None] | None = None
) -> tuple[int, float]:
    """How often the stand-in was asked in three such steps, and the last one's error."""
    flash._TRUST.clear()
    layer = lay_out(case, "cpu")
    TriedStep.asked, TriedStep.wrong_by, TriedStep.errors = 0, wrong_by, errors or []
    for _ in range(3):
        out = layer.attend(through=TriedStep.of).float()
    expected = layer.expected()
    return TriedStep.asked, float((out - expected).norm() / expected.norm())

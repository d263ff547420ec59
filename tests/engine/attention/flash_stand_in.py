"""Attention with a stand-in for FlashAttention. Tests run it in a process of its own."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from deployments.engine.attention import flash
from deployments.engine.attention.flash import FlashAttention
from deployments.engine.attention.gpu import TritonAttention
from tests.engine.kernels.gpu.paged import Case, lay_out


class StandInFlash(FlashAttention):
    """Our own kernel in the place of FlashAttention. It can be made wrong, or fail at some call."""

    n_calls = 0
    wrong_by = 0.0
    errors: ClassVar[list[Exception | None]] = []

    def _attend_with_flash(self, attention: Any, q: Tensor) -> Tensor:
        StandInFlash.n_calls += 1
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        ours = TritonAttention._attend_chunks(self, attention, torch.zeros_like(q), q)
        return ours * (1 + self.wrong_by)


def attend_with_stand_in(
    case: Case, wrong_by: float = 0.0, errors: list[Exception | None] | None = None
) -> tuple[int, float]:
    """Computes a case three times. Returns the calls of the stand-in, and the last result's
    relative error."""
    flash._IS_RELIABLE.clear()
    layer = lay_out(case, "cpu")
    StandInFlash.n_calls, StandInFlash.wrong_by, StandInFlash.errors = 0, wrong_by, errors or []
    for _ in range(3):
        out = layer.attend(through=StandInFlash.from_triton).float()
    expected = layer.expected()
    return StandInFlash.n_calls, float((out - expected).norm() / expected.norm())

"""Steps whose chunks are tried on a stand-in for FlashAttention, in a process of their own."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from deployments.engine import flash
from deployments.engine.flash import FlashStep
from deployments.engine.paged import PagedStep
from tests.engine.paged import Case, lay_out


class TriedStep(FlashStep):
    """`result` takes the place of what FlashAttention would say."""

    result: Tensor | RuntimeError
    asked: int

    def _attend_with_flash(self, attention: Any, q: Tensor) -> Tensor:
        TriedStep.asked += 1
        if isinstance(self.result, RuntimeError):
            raise self.result
        return self.result


def tried(case: Case, wrong_by: float, error: RuntimeError | None = None) -> tuple[list[bool], int]:
    """Whether each of three such steps took the stand-in's result, and how often it was asked."""

    def through(step: PagedStep) -> PagedStep:
        return TriedStep(**{field.name: getattr(step, field.name) for field in fields(step)})

    flash._TRUST.clear()
    layer = lay_out(case, "cpu")
    TriedStep.asked = 0
    TriedStep.result = error or layer.expected().to(torch.bfloat16) * (1 + wrong_by)
    outputs = [layer.attend(through=through) for _ in range(3)]
    return [out is TriedStep.result for out in outputs], TriedStep.asked

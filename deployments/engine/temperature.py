"""Temperature: how much the likely tokens are preferred, fixed or by the entropy of the row."""

from math import pow

import torch
from torch import Tensor

from deployments.engine.strategy import SamplingRows, SamplingStrategy
from deployments.wire import SamplingParams


class TemperatureStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.where(
            lambda p: p.temperature > 0 and (p.temperature != 1 or p.dynatemp_range > 0),
            "temperature",
            "dynatemp_range",
        )
        if wanting:
            # With the highest logit at 0 no temperature, however low, overflows.
            part = logits[wanting]
            part -= part.amax(1, keepdim=True)
            degrees = rows.column(wanting, lambda p: _bounded(p.temperature))
            for i, row in enumerate(wanting):
                if rows.params[row].dynatemp_range > 0:
                    degrees[i] = _dynamic(part[i], rows.params[row])
            logits[wanting] = part / degrees


def _dynamic(logits: Tensor, params: SamplingParams) -> float:
    """The entropy's share of the greatest possible one, between the ends of the range."""
    entropy = torch.special.entr(logits.double().softmax(0)).sum()
    greatest = logits.isfinite().sum().double().log().clamp(min=1e-9)  # of one token it is 0
    share = float((entropy / greatest).clamp(max=1))
    coldest = _bounded(params.temperature - params.dynatemp_range)
    hottest = _bounded(params.temperature + params.dynatemp_range)
    return coldest + (hottest - coldest) * pow(share, params.dynatemp_exponent)


def _bounded(degrees: float) -> float:
    return min(max(degrees, 1e-30), 1e30)

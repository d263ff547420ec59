"""Temperature: how much the likely tokens are preferred, fixed or by the entropy of the row."""

from math import pow

import torch
from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import SamplingStrategy
from deployments.wire import SamplingParams

COLDEST, HOTTEST = 1e-30, 1e30


class TemperatureStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        asking = rows.asking(_asks_for_heat, "temperature", "dynatemp_range")
        if asking:
            # With the highest logit at 0 no temperature, however low, overflows.
            part = asking.take(logits)
            part -= part.amax(1, keepdim=True)
            degrees = asking.column("temperature").clamp(COLDEST, HOTTEST)
            if rows.changed("dynatemp_range"):
                for i, params in enumerate(asking.params):
                    if params.dynatemp_range > 0:
                        degrees[i] = _dynamic(part[i], params)
            part /= degrees
            asking.put(logits, part)


def _asks_for_heat(params: SamplingParams) -> bool:
    return params.temperature > 0 and (params.temperature != 1 or params.dynatemp_range > 0)


def _dynamic(logits: Tensor, params: SamplingParams) -> float:
    """The entropy's share of the greatest possible one, between the ends of the range."""
    entropy = torch.special.entr(logits.double().softmax(0)).sum()
    greatest = logits.isfinite().sum().double().log().clamp(min=1e-9)  # of one token it is 0
    share = float((entropy / greatest).clamp(max=1))
    coldest = _bounded(params.temperature - params.dynatemp_range)
    hottest = _bounded(params.temperature + params.dynatemp_range)
    return coldest + (hottest - coldest) * pow(share, params.dynatemp_exponent)


def _bounded(degrees: float) -> float:
    return min(max(degrees, COLDEST), HOTTEST)

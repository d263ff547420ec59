"""Temperature: divides logits by a number, fixed or chosen by the entropy of the row."""

from math import pow

import torch
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BaseSamplingStrategy

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-30, 1e30


class TemperatureStrategy(BaseSamplingStrategy):
    """Divides the logits of rows that are not greedy by their temperature."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_temperature, "temperature", "dynatemp_range")
        if group:
            # With the highest logit at 0 no temperature, however low, overflows.
            part = group.take(logits)
            part -= part.amax(1, keepdim=True)
            temperature = group.column("temperature").clamp(MIN_TEMPERATURE, MAX_TEMPERATURE)
            if rows.has_non_default("dynatemp_range"):
                for i, params in enumerate(group.params):
                    if params.dynatemp_range > 0:
                        temperature[i] = _dynamic(part[i], params)
            part /= temperature
            group.put(logits, part)


def _has_temperature(params: SamplingParams) -> bool:
    return params.temperature > 0 and (params.temperature != 1 or params.dynatemp_range > 0)


def _dynamic(logits: Tensor, params: SamplingParams) -> float:
    """Returns a temperature in the range, by the entropy's share of the largest possible one."""
    entropy = torch.special.entr(logits.double().softmax(0)).sum()
    largest = logits.isfinite().sum().double().log().clamp(min=1e-9)  # of one token it is 0
    share = float((entropy / largest).clamp(max=1))
    lowest = _bounded(params.temperature - params.dynatemp_range)
    highest = _bounded(params.temperature + params.dynatemp_range)
    return lowest + (highest - lowest) * pow(share, params.dynatemp_exponent)


def _bounded(temperature: float) -> float:
    return min(max(temperature, MIN_TEMPERATURE), MAX_TEMPERATURE)

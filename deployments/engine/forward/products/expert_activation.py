"""Finds out what experts compute between their two products, by trying it out."""

from collections.abc import Iterator
from itertools import product
from math import inf, pi, sqrt
from typing import Any

import torch
from torch import Tensor

from deployments.engine.kernels.experts import SQUARED_RELU, ExpertActivation

# The tanh of GELU is one of the sigmoid: (1 + tanh(x)) / 2 = sigmoid(2 x).
GELU_TANH = 2 * sqrt(2 / pi)
GELU_CUBE = 0.044715 * GELU_TANH
QUICK_GELU = 1.702
N_TRIED, SPREAD = 64, 20.0  # numbers of each first product, far apart: some are beyond a bound
MAX_DIFFERENCE = 1e-5  # relative: some models compute in float32 here


def expert_activation(experts: Any) -> ExpertActivation | None:
    """Finds what is computed between both products of experts that transformers lets others
    compute. None: nothing that our kernel knows."""
    random = torch.Generator().manual_seed(0)
    near = torch.randn(2, 1, N_TRIED, dtype=torch.float64, generator=random)
    far = max([SPREAD, *(2 * number for number in _numbers(experts))])
    x, gated = torch.cat([near * SPREAD, near * far], -1)
    other = gated if experts.has_gate else None
    try:
        found = _activated(experts, x, other)
    except (RuntimeError, TypeError):  # it takes other types or sizes than these
        return None
    return next((each for each in _known(experts) if _is_same(each, found, x, other)), None)


def activate(activation: ExpertActivation, x: Tensor, other: Tensor | None) -> Tensor:
    """Computes what our kernel does with x [..., n], and `other` where there are two products."""
    kind, limit, slope, cube, shift = activation
    if kind == SQUARED_RELU:
        x = x.clamp(min=0) ** 2
    else:
        x = x.clamp(max=limit)
        x = x * torch.sigmoid(slope * x + cube * x**3)
    return x if other is None else x * (other.clamp(-limit, limit) + shift)


def _activated(experts: Any, x: Tensor, other: Tensor | None) -> Tensor:
    """Computes what the experts themselves do with it."""
    if other is None:
        found: Tensor = experts.act_fn(x)
    elif experts.is_concatenated:
        found = experts._apply_gate(torch.cat([x, other], -1))
    else:
        found = experts._apply_gate(torch.stack([x, other], -1).flatten(-2))
    return found.double()


def _known(experts: Any) -> Iterator[ExpertActivation]:
    """Yields the usual ones first. The numbers of others are attributes of the experts."""
    yield ExpertActivation()
    yield ExpertActivation(kind=SQUARED_RELU)
    own = _numbers(experts)
    slopes = (1.0, QUICK_GELU, *own)
    curves = [(GELU_TANH, GELU_CUBE), *((slope, 0.0) for slope in slopes)]
    for shift, (slope, cube), limit in product((0.0, 1.0), curves, (inf, *own)):
        yield ExpertActivation(limit=limit, slope=slope, cube=cube, shift=shift)


def _numbers(experts: Any) -> list[float]:
    """Attributes that may be bounds or slopes."""
    numbers = (float(each) for each in vars(experts).values() if type(each) in (int, float))
    return [number for number in numbers if 0 < number < inf]


def _is_same(activation: ExpertActivation, found: Tensor, x: Tensor, other: Tensor | None) -> bool:
    expected = activate(activation, x, other)
    return torch.allclose(found, expected, rtol=MAX_DIFFERENCE, atol=MAX_DIFFERENCE**2)

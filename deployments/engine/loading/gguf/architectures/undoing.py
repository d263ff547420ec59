"""Undoes what the conversion did to numbers. Such tensors are small, and float32 in files."""

import numpy as np

from deployments.engine.loading.gguf.block_types import Floats


def without_one(weights: Floats) -> Floats:
    """Norms that add 1 to their weights have it added in files."""
    return weights - np.float32(1)


def log_of_negative(weights: Floats) -> Floats:
    """Files have -exp of the logarithms that transformers has. Others than negative numbers end as
    NaN, which no model has."""
    with np.errstate(all="ignore"):
        return np.log(-weights)

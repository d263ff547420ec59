"""Undoes what the conversion did to numbers. Such tensors are small, and float32 in files."""

import numpy as np

from deployments.engine.loading.gguf.dequantizing import Floats


def without_one(weights: Floats) -> Floats:
    """Norms that add 1 to their weights have it added in files."""
    return weights - np.float32(1)

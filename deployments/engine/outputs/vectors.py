"""Makes the vectors of an answer from pooled numbers: their first numbers, normalised, as bytes."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from deployments.contract.outputs import VECTOR_ITEM_BYTES, PoolParams, Vectors

Floats = NDArray[np.float32]

INT16_PEAK = 32760.0  # the largest number of a vector that is normalised for 16 bits
MAX_EVENT_BYTES = 2 << 20  # of vectors in one event: a message to an ingress has some 4 MiB


def finish_vectors(vectors: Floats, params: PoolParams, *, normalizes: bool) -> Floats:
    """vectors [n, size] as a request wants them; `normalizes` is what their model does."""
    if params.dimensions is not None:
        vectors = vectors[:, : params.dimensions]
    kind = params.normalize
    if kind is None:
        kind = 2 if normalizes else -1
    return normalized(vectors, kind)


def normalized(vectors: Floats, kind: int) -> Floats:
    """vectors [n, size]; `kind` as in `PoolParams.normalize`. A vector of zeros stays one."""
    if kind < 0:
        return vectors
    wide = np.abs(vectors.astype(np.float64))
    if kind == 0:
        norms = wide.max(1, keepdims=True) / INT16_PEAK
    else:  # by the largest number, so that no power of it overflows
        peak = wide.max(1, keepdims=True)
        parts = np.divide(wide, peak, out=np.zeros_like(wide), where=peak > 0)
        norms = peak * (parts**kind).sum(1, keepdims=True) ** (1 / kind)
    factors = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    scaled: Floats = (vectors * factors).astype(np.float32)
    return scaled


def pack(vectors: Floats) -> Vectors:
    """vectors [n, size]"""
    return Vectors(len(vectors), vectors.astype("<f4").tobytes())


def unpack(vectors: Vectors) -> Floats:
    """[n, size]"""
    flat = np.frombuffer(vectors.data, dtype="<f4").astype(np.float32)
    return flat.reshape(vectors.n, -1)


def split(vectors: Vectors) -> Iterator[Vectors]:
    """Yields parts that are small enough for an event, unless a single vector is not."""
    row_bytes = vectors.size * VECTOR_ITEM_BYTES
    n_each = max(1, MAX_EVENT_BYTES // max(1, row_bytes))
    for first in range(0, vectors.n, n_each):
        data = vectors.data[first * row_bytes : (first + n_each) * row_bytes]
        yield Vectors(min(n_each, vectors.n - first), data)

"""Small arrays between the host and a device, without one waiting for the other."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Brings an array to a device. From pinned memory the copy does not wait for the work before
    it."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def all_to_device(arrays: Sequence[NDArray[Any]], device: torch.device) -> Iterable[Tensor]:
    """Brings arrays of one shape and type to a device, in one piece where that takes a copy."""
    if device.type != "cuda":
        return map(torch.from_numpy, arrays)
    return to_device(np.stack(arrays), device).unbind()


class Readback:
    """Tensors of one shape on their way to the host, in one piece: behind the work that makes them,
    before all that follows."""

    def __init__(self, *tensors: Tensor) -> None:
        self._host: Sequence[Tensor] = tensors
        self._arrival: torch.cuda.Event | None = None
        if tensors[0].is_cuda:
            # Whole numbers up to 2^53, and those of any smaller type, are exact in float64.
            joined = torch.stack([tensor.double() for tensor in tensors])
            host = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
            self._host = [*host.copy_(joined, non_blocking=True)]
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    def tolist(self) -> list[Any]:
        """Waits for them. Numbers may be floats that have come from a GPU."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return [tensor.tolist() for tensor in self._host]

"""Small arrays between the host and a device, without one waiting for the other."""

from typing import Any

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


class Readback:
    """A tensor on its way to the host: behind the work that makes it, before all that follows."""

    def __init__(self, tensor: Tensor) -> None:
        self._host = tensor
        self._arrival: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    def tolist(self) -> list[Any]:
        """Waits for it."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._host.tolist()

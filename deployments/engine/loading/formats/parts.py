"""The tensors that a quantized weight has in its files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.quantized.stored_matrix import StoredMatrix


class StoredParts(NamedTuple):
    """A matrix and the parameter that it is.

    outer: the shape of its rows: of outputs, or of experts and outputs.
    is_transposed: the parameter has inputs before outputs.
    """

    matrix: StoredMatrix
    outer: tuple[int, ...]
    is_transposed: bool = False


@dataclass(frozen=True)
class WeightParts:
    """The tensors of a weight, mapped from their files.

    name: of all of them, up to the ends that tell them apart.
    tensors: by these ends.
    """

    name: str
    tensors: Mapping[str, Tensor]

    def __getitem__(self, end: str) -> Tensor:
        """Raises UnsupportedModelError where there is no such tensor."""
        found = self.tensors.get(end)
        if found is None:
            present = ", ".join(self.name + other for other in self.tensors)
            raise UnsupportedModelError(f"its files have {present}, and lack {self.name}{end}")
        return found

    def get(self, end: str) -> Tensor | None:
        return self.tensors.get(end)

    @property
    def n_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def refusal(self, end: str, why: str) -> UnsupportedModelError:
        """The error of a tensor that is not as its format says."""
        tensor = self.tensors[end]
        form = f"{str(tensor.dtype).removeprefix('torch.')} {[*tensor.shape]}"
        return UnsupportedModelError(f"{self.name}{end} is {form}: {why}")

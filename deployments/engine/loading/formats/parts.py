"""The tensors that a quantized weight has in its files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.mapped_file import FileSpan
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
    spans: where each lies, by the same ends.
    """

    name: str
    tensors: Mapping[str, Tensor]
    spans: Mapping[str, FileSpan] = field(default_factory=dict)

    def __getitem__(self, end: str) -> Tensor:
        """Raises UnsupportedModelError where there is no such tensor."""
        found = self.tensors.get(end)
        if found is None:
            present = ", ".join(self.name + other for other in self.tensors)
            raise UnsupportedModelError(
                f"{self._file}its files have {present}, and lack {self.name}{end}"
            )
        return found

    def get(self, end: str) -> Tensor | None:
        return self.tensors.get(end)

    @property
    def n_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def _file(self) -> str:
        """The file of the first of them, as errors begin with it."""
        return next((f"{span.file.path}: " for span in self.spans.values()), "")

    def refusal(self, end: str, why: str) -> UnsupportedModelError:
        """The error of a tensor that is not as its format says."""
        tensor = self.tensors[end]
        form = f"{str(tensor.dtype).removeprefix('torch.')} {[*tensor.shape]}"
        return UnsupportedModelError(f"{self._file}{self.name}{end} is {form}: {why}")


class PartsMatrix(StoredMatrix):
    """A matrix of the tensors of a weight."""

    def __init__(
        self,
        storage: str,
        parts: WeightParts,
        shape: tuple[int, int],
        input_order: Tensor | None = None,
    ) -> None:
        super().__init__(storage, *shape, parts.n_bytes, input_order)
        self.parts = parts

    def let_go(self) -> None:
        for span in self.parts.spans.values():
            span.let_go()

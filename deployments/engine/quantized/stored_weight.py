"""A parameter whose weights stay quantized, and stay in their file until a product is made of them.

Models are taken apart, split and joined before: by conversions of names, by ranks, by the fusing of
projections. A stored weight follows what they do with rows and inputs, and reads nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from deployments.engine.quantized.block_rows import BlockRows, joined_blocks
from deployments.engine.quantized.input_share import bits_of_weight, input_shares
from deployments.engine.quantized.layout import Layout
from deployments.engine.quantized.place import (
    ZEROS,
    Place,
    RowRun,
    blocks_of_run,
    numbered_on,
    read_run,
    runs_of,
)
from deployments.engine.quantized.quantized_rows import QuantizedRows, joined
from deployments.engine.quantized.stored_matrix import StoredMatrix

WEIGHTS_AT_ONCE = 1 << 22  # that are dequantized


class StoredWeight(Tensor):
    """[..., outputs, inputs] of the type that a model computes in, with storage of no memory.

    What only moves whole rows or cuts inputs gives another stored weight. Any other operation is
    computed with the dequantized weights, and takes the memory of these.
    """

    place: Place
    _whole: tuple[StoredMatrix, ...] | None  # None: it has not been asked for

    @staticmethod
    def __new__(
        cls, place: Place, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> "StoredWeight":
        shape = [*place.rows.shape, place.end - place.first]
        if place.is_transposed:
            shape[-2:] = shape[:-3:-1]
        with torch.inference_mode(False):  # what is made within takes no views of others
            made: StoredWeight = Tensor._make_wrapper_subclass(
                cls, shape, dtype=dtype, device=torch.device(device)
            )
        made.place, made._whole = place, None
        return made

    @classmethod
    def of(cls, matrix: StoredMatrix, shape: Sequence[int], dtype: torch.dtype) -> "StoredWeight":
        """A whole matrix as a parameter of a shape [..., outputs, inputs]."""
        index = torch.arange(matrix.n_rows).view(*shape[:-1])
        return cls(Place((matrix,), index, 0, matrix.n_inputs), dtype)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"StoredWeight({[*self.shape]}, {self.storage_format}, {self.dtype}, {self.device})"

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes in the files, by its share of their rows and inputs."""
        return sum(
            matrix.n_bytes * len(rows) * self.n_inputs // (matrix.n_rows * matrix.n_inputs)
            for matrix, rows in self.runs()
        )

    @property
    def storage_format(self) -> str:
        """The name of its storage format, or of several ones."""
        return "+".join(sorted({matrix.storage for matrix in self.place.matrices}))

    @property
    def whole_matrix(self) -> StoredMatrix | None:
        """The matrix whose rows and inputs it has, all in their order; None: there is no such."""
        if self._whole is None:
            self._whole = self._find_whole()
        return next(iter(self._whole), None)

    def _find_whole(self) -> tuple[StoredMatrix, ...]:
        matrices, rows, first, end, is_transposed = self.place
        (matrix, *others), n_rows = matrices, rows.numel()
        if others or is_transposed or matrix.input_order is not None:
            return ()
        if (first, end, n_rows) != (0, matrix.n_inputs, matrix.n_rows):
            return ()
        return (matrix,) if torch.equal(rows.flatten(), torch.arange(n_rows)) else ()

    @property
    def n_outputs(self) -> int:
        """The outputs of all its matrices together."""
        return self.place.rows.numel()

    @property
    def n_inputs(self) -> int:
        return self.place.end - self.place.first

    @property
    def n_columns(self) -> int:
        """Columns of rows that are read: with an order of inputs there may be more than inputs."""
        matrix = self.place.matrices[0]
        return matrix.n_columns if self.n_inputs == matrix.n_inputs else self.n_inputs

    @property
    def layouts(self) -> frozenset[Layout]:
        return frozenset(matrix.layout for matrix in self.place.matrices)

    @property
    def is_ordered(self) -> bool:
        """Whether one of its matrices has its inputs in an order of its own."""
        return any(matrix.input_order is not None for matrix in self.place.matrices)

    @property
    def input_order(self) -> Tensor | None:
        """The order of inputs of all of its matrices, where they have one arrangement."""
        return self.place.matrices[0].input_order

    def runs(self) -> Iterator[RowRun]:
        """All its outputs in order, by the matrices that they are in."""
        yield from runs_of(self.place.matrices, self.place.rows.flatten())

    def by_arrangement(self) -> list["StoredWeight"]:
        """Its outputs [outputs, inputs] in order, in parts of one arrangement each."""
        parts: list[StoredWeight] = []
        begin, at, before = 0, 0, None
        for run in self.runs():
            arrangement = run.matrix.arrangement
            if before not in (None, arrangement):
                parts.append(self._outputs(begin, at))
                begin = at
            before = arrangement
            at += len(run.rows)
        return [*parts, self._outputs(begin, at)]

    def matrix(self, number: int) -> "StoredWeight":
        """One of several matrices [..., outputs, inputs]."""
        return self._of(self.place.rows[number])

    def of_outputs(self, first: int, end: int) -> "StoredWeight":
        """Some outputs of each of its matrices."""
        return self._of(self.place.rows[..., first:end])

    def _outputs(self, first: int, end: int) -> "StoredWeight":
        return self._of(self._rows[first:end], is_transposed=False)

    def _of(self, rows: Tensor, **changes: Any) -> "StoredWeight":
        """Other rows, with those of its matrices alone that these are in."""
        matrices, (moved,) = numbered_on([(self.place.matrices, rows)])
        return _moved(self, matrices=matrices, rows=moved, **changes)

    def over(self, matrices: Sequence[StoredMatrix]) -> "StoredWeight":
        """The same weight, of which all outputs are the rows of these matrices."""
        rows = torch.arange(self.n_outputs).view_as(self.place.rows)
        place = Place((*matrices,), rows, 0, self.n_inputs, self.place.is_transposed)
        return StoredWeight(place, self.dtype, self.device)

    def read(self, first: int, end: int) -> QuantizedRows:
        """Some of its outputs, whose matrices have one layout."""
        place = self.place
        parts = [read_run(run, place) for run in runs_of(place.matrices, self._rows[first:end])]
        return parts[0] if len(parts) == 1 else joined(parts)

    def block_rows(self, first: int, end: int) -> BlockRows | None:
        """Returns what `read` reads, where it lies; None: it has to be read."""
        parts = []
        for run in runs_of(self.place.matrices, self._rows[first:end]):
            part = blocks_of_run(run, self.place)
            if part is None:
                return None
            parts.append(part)
        return joined_blocks(parts)

    @property
    def _rows(self) -> Tensor:
        return self.place.rows.flatten()

    def let_go(self) -> None:
        """Gives the memory back that files take whose bytes were read for it."""
        for matrix in self.place.matrices:
            matrix.let_go()

    def dequantize(self) -> Tensor:
        """float32 of its shape, on its device."""
        place, n_inputs = self.place, self.n_inputs
        weights = torch.empty(self.n_outputs, n_inputs, device=self.device)
        at = 0
        for run in self.runs():
            order = run.matrix.input_order
            columns = slice(None) if order is None else torch.argsort(order)[:n_inputs]
            for rows in torch.split(run.rows, max(1, WEIGHTS_AT_ONCE // max(1, n_inputs))):
                part = read_run(RowRun(run.matrix, rows), place).dequantize()
                weights[at : at + len(rows)] = part[:, columns]
                at += len(rows)
        self.let_go()
        shaped = weights.view(*place.rows.shape, n_inputs)
        return shaped.mT if place.is_transposed else shaped

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        move = MOVES.get(func)
        moved = None if move is None else move(func, *args, **(kwargs or {}))
        if moved is not None:
            return moved
        if func._schema.is_mutable and isinstance(args[0], StoredWeight):
            raise TypeError(f"{func} can't change weights that are quantized")
        args, kwargs = tree_map(_plain, (args, dict(kwargs or {})))
        return func(*args, **kwargs)


def _plain(value: Any) -> Any:
    if not isinstance(value, StoredWeight):
        return value
    return value.dequantize().to(value.device, value.dtype)


Move = Callable[..., Any]  # takes the operation and its arguments; None: it is computed


def _same(_: Any, weight: StoredWeight, **__: Any) -> StoredWeight:
    return StoredWeight(weight.place, weight.dtype, weight.device)


def _to(_: Any, weight: StoredWeight, **options: Any) -> StoredWeight | None:
    dtype = options.get("dtype") or weight.dtype
    if not dtype.is_floating_point:
        return None
    return StoredWeight(weight.place, dtype, options.get("device") or weight.device)


def _moved(weight: StoredWeight, **changes: Any) -> StoredWeight:
    return StoredWeight(weight.place._replace(**changes), weight.dtype, weight.device)


def _dim(weight: StoredWeight, dim: int) -> int:
    """The number of a dimension where the inputs are the last one."""
    dim %= weight.dim()
    if weight.place.is_transposed and dim >= weight.dim() - 2:
        return 2 * weight.dim() - 3 - dim
    return dim


def _slice(
    func: Any,
    weight: StoredWeight,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> StoredWeight | None:
    own = _dim(weight, dim)
    if own < weight.dim() - 1:
        return _moved(weight, rows=func(weight.place.rows, own, start, end, step))
    first, last, _ = slice(start, end).indices(weight.n_inputs)
    if step != 1:
        return None
    last = max(first, last)
    if weight.is_ordered and (first, last) != (0, weight.n_inputs):
        matrices = input_shares(weight.place.matrices, first, last)
        is_smaller = mean(map(bits_of_weight, matrices)) < 8 * weight.dtype.itemsize
        return _moved(weight, matrices=matrices, first=0, end=last - first) if is_smaller else None
    before = weight.place.first
    return _moved(weight, first=before + first, end=before + last)


def _split(func: Any, weight: StoredWeight, sizes: Any, dim: int = 0) -> list[Any] | None:
    n, parts, at = weight.shape[dim], [], 0
    each = [sizes] * -(-n // sizes) if isinstance(sizes, int) else sizes
    for size in each:
        parts.append(torch.ops.aten.slice.Tensor(weight, dim, at, min(at + size, n)))
        at += size
    return parts


def _select(func: Any, weight: StoredWeight, dim: int, number: int) -> StoredWeight | None:
    own = _dim(weight, dim)
    is_matrix = weight.dim() > 2 and own < weight.dim() - 2
    return _moved(weight, rows=func(weight.place.rows, own, number)) if is_matrix else None


def _index_select(func: Any, weight: StoredWeight, dim: int, ids: Tensor) -> StoredWeight | None:
    own = _dim(weight, dim)
    if own == weight.dim() - 1:
        return None
    return _moved(weight, rows=func(weight.place.rows, own, ids.cpu()))


def _cat(func: Any, weights: Sequence[Any], dim: int = 0) -> StoredWeight | None:
    first = weights[0]
    if not all(isinstance(weight, StoredWeight) for weight in weights):
        return None
    own = _dim(first, dim)
    if any(_others(weight) != _others(first) for weight in weights) or own == first.dim() - 1:
        return None
    matrices, indices = numbered_on([weight.place[:2] for weight in weights])
    return _moved(first, matrices=matrices, rows=func(indices, own))


def _stack(func: Any, weights: Sequence[Any], dim: int = 0) -> StoredWeight | None:
    return _cat(torch.ops.aten.cat.default, [weight.unsqueeze(dim) for weight in weights], dim)


def _others(weight: StoredWeight) -> object:
    place = weight.place
    return (
        *(place.first, place.end, weight.n_columns),
        *(place.is_transposed, weight.dtype, weight.device),
    )


def _pad(
    func: Any, weight: StoredWeight, pad: Sequence[int], value: float = 0
) -> StoredWeight | None:
    if value or weight.place.is_transposed or any(pad[:2]):
        return None
    return _moved(weight, rows=func(weight.place.rows, [*pad[2:]], ZEROS))


def _view(func: Any, weight: StoredWeight, shape: Sequence[int]) -> StoredWeight | None:
    n_inputs = weight.n_inputs
    if weight.place.is_transposed or len(shape) < 2 or shape[-1] not in (n_inputs, -1):
        return None
    return _moved(weight, rows=weight.place.rows.reshape(*shape[:-1]))


def _unsqueeze(func: Any, weight: StoredWeight, dim: int) -> StoredWeight | None:
    own = dim % (weight.dim() + 1)
    is_outer = own <= weight.dim() - 2
    return _moved(weight, rows=func(weight.place.rows, own)) if is_outer else None


def _transpose(func: Any, weight: StoredWeight, a: int = 0, b: int = 1) -> StoredWeight | None:
    a, b = a % weight.dim(), b % weight.dim()
    if {a, b} == {weight.dim() - 1, weight.dim() - 2}:
        return _moved(weight, is_transposed=not weight.place.is_transposed)
    if weight.place.is_transposed or max(a, b) > weight.dim() - 2:
        return None
    return _moved(weight, rows=weight.place.rows.transpose(a, b))


def _embedding(func: Any, weight: StoredWeight, ids: Tensor, *options: Any) -> Tensor:
    matrix = weight.whole_matrix
    if matrix is None:
        found = _moved(weight, rows=weight.place.rows[ids.cpu()]).dequantize()
    else:  # no number has to be known here
        found = matrix.numbers(ids.flatten(), weight.dtype).view(*ids.shape, -1)
    return found.to(weight.device, weight.dtype)


ATEN = torch.ops.aten
MOVES: Mapping[Any, Move] = {
    ATEN.detach.default: _same,
    ATEN.alias.default: _same,
    ATEN.clone.default: _same,
    ATEN._to_copy.default: _to,
    ATEN.slice.Tensor: _slice,
    ATEN.split.Tensor: _split,
    ATEN.split_with_sizes.default: _split,
    ATEN.select.int: _select,
    ATEN.index_select.default: _index_select,
    ATEN.cat.default: _cat,
    ATEN.stack.default: _stack,
    ATEN.constant_pad_nd.default: _pad,
    ATEN.view.default: _view,
    ATEN._unsafe_view.default: _view,
    ATEN.unsqueeze.default: _unsqueeze,
    ATEN.t.default: _transpose,
    ATEN.transpose.int: _transpose,
    ATEN.embedding.default: _embedding,
}

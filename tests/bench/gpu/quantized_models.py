"""Models of random quantized weights, without files, and their products by themselves.

What the weights say does not matter to their speed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.products.making import make_products
from deployments.engine.loading.loader import finish_weights
from deployments.engine.quantized.layout import E4M3, INT8, Codebook, integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.bench.device_time import best_seconds

TURNS = 8  # of the matrices of a product, so that no cache holds what is read


@dataclass(frozen=True)
class BlockType:
    """A layout. Inputs that share a scale, and a second factor of it; 0: a row, or no factor."""

    codebook: Codebook
    group: int
    coarse_group: int = 0
    has_least: bool = False
    factor: torch.dtype = torch.float16
    fine: torch.dtype = torch.uint8


Q4_K = BlockType(integers(4), 32, 256, has_least=True)
Q6_K = BlockType(integers(6, -32), 16, 256, fine=torch.int8)
Q8_0 = BlockType(INT8, 32)
FP8 = BlockType(E4M3, 0, factor=torch.float32)
INT4 = BlockType(integers(4), 64, has_least=True)
# By format: the type of most matrices, of half of those of values and behind the feed-forward, and
# of the output; None: it stays plain.
FORMATS: Mapping[str, tuple[BlockType, BlockType, BlockType | None]] = {
    "Q4_K_M": (Q4_K, Q6_K, Q6_K),
    "Q8_0": (Q8_0, Q8_0, Q8_0),
    "fp8": (FP8, FP8, None),
    "int4": (INT4, INT4, None),
}
BETTER = ("v_proj", "down_proj")
OUTPUT = "lm_head"


class RandomMatrix(StoredMatrix):
    """Rows that are drawn when they are read."""

    def __init__(self, kind: BlockType, n_rows: int, n_inputs: int, device: str) -> None:
        self._kind, self._device = kind, device
        super().__init__("random", n_rows, n_inputs, n_rows * n_inputs)

    def rows(self, index: Tensor) -> QuantizedRows:
        kind, n = self._kind, len(index)
        shape, codes = (n, self.n_inputs), len(kind.codebook.values)
        drawn = torch.randint(0, codes, shape, device=self._device, dtype=torch.uint8)
        if kind.codebook == E4M3:
            drawn &= 0xBF  # no weight is much larger than others
        return QuantizedRows(
            kind.codebook, drawn, self._factors(n), self._factors(n) if kind.has_least else None
        )

    def _factors(self, n: int) -> Factors:
        kind = self._kind
        size = 0.02 / max(kind.codebook.values) * self.n_inputs**-0.5
        if not kind.coarse_group:
            groups = self.n_inputs // (kind.group or self.n_inputs)
            return Factors(torch.full((n, groups), size, dtype=kind.factor, device=self._device))
        coarse = n, max(1, self.n_inputs // kind.coarse_group)
        fine = torch.ones(n, self.n_inputs // kind.group, dtype=kind.fine, device=self._device)
        return Factors(torch.full(coarse, size, dtype=kind.factor, device=self._device), fine)


def stored(kind: BlockType, n_rows: int, n_inputs: int, device: str) -> StoredWeight:
    matrix = RandomMatrix(kind, n_rows, n_inputs, device)
    return StoredWeight.of(matrix, (n_rows, n_inputs), torch.bfloat16)


def quantize_randomly(model: PreTrainedModel, name: str, device: str) -> int:
    """Replaces the linear layers of a model by quantized ones. Returns the bytes that a step reads
    of them."""
    most, better, output = FORMATS[name]
    n_layers = model.config.num_hidden_layers
    plain = 0
    for path, linear in [*model.named_modules()]:
        if not isinstance(linear, nn.Linear):
            continue
        *_, own = path.split(".")
        layer = next((int(part) for part in path.split(".") if part.isdigit()), 0)
        is_better = own in BETTER and (layer < n_layers // 8 or layer % 3 == 2)
        kind = output if own == OUTPUT else better if is_better else most
        if kind is None:
            plain += linear.weight.nbytes
            continue
        n_outputs, n_inputs = linear.weight.shape
        weight = stored(kind, n_outputs, n_inputs, device)
        linear.weight = nn.Parameter(weight, requires_grad=False)
    finish_weights(model, device)
    return plain + sum(buffer.nbytes for buffer in _buffers(model))


def _buffers(model: nn.Module) -> list[Tensor]:
    """The memory of quantized weights, each part once."""
    found = {
        buffer.data_ptr(): buffer
        for path, buffer in model.named_buffers()
        if "_proj" in path or OUTPUT in path
    }
    return [*found.values()]


def product_microseconds(
    kind: BlockType | None, rows: int, sizes: tuple[int, int], device: str
) -> float:
    """One product of [outputs, inputs] by itself, launches included where they are not hidden;
    None: of bfloat16."""
    x = torch.randn(rows, sizes[1], device=device).to(torch.bfloat16)
    products = cycle([_product(kind, sizes, device) for _ in range(TURNS)])

    def run() -> None:
        for _ in range(4 * TURNS):
            next(products)(x)

    return best_seconds(run, device, 5) / (4 * TURNS) * 1e6


def _product(
    kind: BlockType | None, sizes: tuple[int, int], device: str
) -> Callable[[Tensor], Tensor]:
    holder = nn.Sequential(nn.Linear(sizes[1], sizes[0], bias=False, device="meta"))
    weight = torch.empty(sizes, dtype=torch.bfloat16, device=device).normal_()
    if kind is not None:
        weight = stored(kind, *sizes, device)
    holder[0].weight = nn.Parameter(weight, requires_grad=False)
    if kind is not None:
        make_products(holder, torch.device(device))
    return holder

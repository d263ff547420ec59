"""Launches the kernels of quantized weights."""

from dataclasses import dataclass
from functools import cache
from math import inf

import torch
import triton
import triton.language as tl
from torch import Tensor

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.gpu.attention_ops import dot_dtype
from deployments.engine.kernels.gpu.experts.grouping_ops import ChosenExperts
from deployments.engine.kernels.gpu.quantized_kernels import dequantize_kernel, product_kernel
from deployments.engine.kernels.gpu.quantized_numbers import Coding, Scaling

# A program has 64 outputs and two warps: with four, matrix instructions would be others.
OUTPUTS, WARPS, STAGES = 64, 2, 3
TOKENS = {8: 4, 16: 16, 32: inf}  # of a block, of which matrix instructions take 8 each, to a mean
MAX_TOKENS = max(TOKENS)
# Programs that multiply at once on a multiprocessor, so that enough memory is on its way.
PROGRAMS_OF_A_MULTIPROCESSOR = 8
MIN_SPLIT_SLABS = 2  # of a split of the inputs
SLAB = 128  # inputs
ROWS = 32  # of a program that dequantizes
INTERPRETED_MULTIPROCESSORS = 2


@dataclass(frozen=True)
class Slabs:
    """A matrix's weights as the kernels read them. What there is not is None.

    low, high: planes of codes [slabs, rows, words]; natural codes are [rows, words].
    table: what codes stand for, float32.
    coarse, fine, least, fine_least: words of factors [slabs or groups, rows, words].
    order: int32 [columns], the input that each column is multiplied with, or a number behind the
        last input: none. Experts have one each, [experts, columns].
    """

    n_rows: int
    n_columns: int
    coding: Coding
    scaling: Scaling
    low: Tensor
    high: Tensor | None
    table: Tensor | None
    coarse: Tensor
    fine: Tensor | None
    least: Tensor | None
    fine_least: Tensor | None
    order: Tensor | None = None

    @property
    def codes(self) -> tuple[Tensor, ...]:
        """The arguments of kernels for codes and factors."""
        found = self.low, self.high, self.table, self.coarse, self.fine, self.least, self.fine_least
        return tuple(self.low if tensor is None else tensor for tensor in found)


@cache
def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def split_slabs(n_blocks: int, n_columns: int, n_multiprocessors: int) -> int:
    """How many slabs one program takes. No number of tokens changes it."""
    n_slabs = triton.cdiv(n_columns, SLAB)
    wanted = triton.cdiv(PROGRAMS_OF_A_MULTIPROCESSOR * n_multiprocessors, n_blocks)
    n_splits = max(1, min(wanted, n_slabs // MIN_SPLIT_SLABS))
    return int(triton.cdiv(n_slabs, n_splits))


def n_blocks(n_outputs: int) -> int:
    """Blocks of a matrix's outputs, each of which counts the programs that have ended."""
    return int(triton.cdiv(n_outputs, OUTPUTS))


def product(
    x: Tensor,
    slabs: Slabs,
    arrivals: Tensor,
    *,
    out: Tensor,
    bias: Tensor | None = None,
    is_added: bool = False,
    gate: GateActivation | None = None,
) -> None:
    """Computes x [tokens, in] times the weights, for MAX_TOKENS tokens at most.

    arrivals: int32 [n_blocks], zeros before and after. No two launches may use them at a time.
    out: [tokens, out], whose rows may be apart.
    is_added: the result is added to what is there.
    gate: the first half of the outputs are gates; the result is this activation of them times the
        others, [tokens, out / 2].
    """
    residual = out if is_added else None
    tokens = next(tokens for tokens in TOKENS if len(x) <= tokens)
    _launch(x, slabs, slabs.n_rows, arrivals, bias, residual, out, tokens, gate=gate)


def experts_product(
    x: Tensor, slabs: Slabs, n_experts: int, chosen: ChosenExperts, *, is_split: bool
) -> Tensor:
    """The products of tokens and their experts: [places, out]. Those of no expert are not written.

    x: [tokens, in], or [places, in].
    slabs: the experts' weights behind each other.
    """
    n_outputs = slabs.n_rows // n_experts
    out = x.new_empty(len(chosen.places), n_outputs)
    arrivals = None
    if is_split:
        shape = len(chosen.experts) * n_blocks(n_outputs)
        arrivals = torch.zeros(shape, dtype=torch.int32, device=x.device)
    _launch(x, slabs, n_outputs, arrivals, None, None, out, chosen.tokens, chosen=chosen)
    return out


def _launch(
    x: Tensor,
    slabs: Slabs,
    n_outputs: int,
    arrivals: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    out: Tensor,
    tokens: int,
    *,
    gate: GateActivation | None = None,
    chosen: ChosenExperts | None = None,
) -> None:
    """No product is split without `arrivals`."""
    x = x.contiguous()
    n_slabs, blocks = triton.cdiv(slabs.n_columns, SLAB), n_blocks(n_outputs)
    share = n_slabs
    if arrivals is not None:
        programs = blocks * (1 if chosen is None else chosen.of_a_token)
        share = split_slabs(programs, slabs.n_columns, multiprocessors(x.device))
    n_splits = triton.cdiv(n_slabs, share)
    is_merged = gate is not None or n_splits > 1
    n_parts = 1 if chosen is None else len(chosen.experts)
    parts = out
    if is_merged:
        size = n_parts * blocks * n_splits * OUTPUTS * tokens
        parts = torch.empty(size, dtype=torch.float32, device=x.device)
    grouped = (x, x, x) if chosen is None else (chosen.places, chosen.begins, chosen.experts)
    order, counts = _or(slabs.order, x), _or(arrivals, x)
    kind = tl.float16 if x.dtype == torch.float16 else tl.bfloat16
    product_kernel[(blocks, n_splits, n_parts)](
        x, order, *slabs.codes, _or(bias, x), _or(residual, x), out, parts, counts, *grouped,
        len(x), slabs.n_rows, n_outputs, x.shape[1], slabs.n_columns, out.stride(0), n_splits,
        share, 1 if chosen is None else len(chosen.places) // max(1, len(x)),
        CODING=slabs.coding, SCALING=slabs.scaling, OUTPUTS=OUTPUTS, TOKENS=tokens,
        GATED=int(gate or 0), GROUPED=chosen is not None, MERGED=is_merged,
        HAS_ORDER=slabs.order is not None, HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        IS_WHOLE=slabs.n_columns % SLAB == 0, KIND=kind, DOT=_dot(x.dtype),
        num_warps=WARPS, num_stages=STAGES, enable_fp_fusion=True,
    )  # fmt: skip


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def _dot(dtype: torch.dtype) -> tl.dtype:
    """The type of factors: numbers of float32 are multiplied as several of bfloat16."""
    return dot_dtype(torch.bfloat16 if dtype == torch.float32 else dtype)


def dequantize(
    slabs: Slabs, dtype: torch.dtype, *, index: Tensor | None = None, first: int = 0, n: int = 0
) -> Tensor:
    """[rows, columns] of a type: `n` rows from the first on, or those of an index. No bit differs
    from what the weights are in float32, rounded to that type."""
    found = n if index is None else len(index)
    out = torch.empty(found, slabs.n_columns, dtype=dtype, device=slabs.low.device)
    if found:
        grid = triton.cdiv(found, ROWS), triton.cdiv(slabs.n_columns, SLAB)
        dequantize_kernel[grid](
            _or(index, out), *slabs.codes, out, found, first, slabs.n_rows, slabs.n_columns,
            CODING=slabs.coding, SCALING=slabs.scaling, ROWS=ROWS, HAS_INDEX=index is not None,
            KIND=tl.bfloat16, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return out

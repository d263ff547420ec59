"""Launches the kernels of experts."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.experts import ExpertActivation
from deployments.engine.kernels.gpu.attention_ops import dot_dtype
from deployments.engine.kernels.gpu.experts.grouping_ops import (
    ChosenExperts,
    chosen_experts,
    tokens_of_blocks,
)
from deployments.engine.kernels.gpu.experts.product_kernels import (
    activation_kernel,
    expert_product_kernel,
    weighted_sum_kernel,
)

BLOCK = 1024  # numbers of a program between products and behind them
# Tokens choose so few of all experts that hardly two choose one: they are not grouped.
SPARE_EXPERTS = 4


@dataclass(frozen=True)
class MatrixShape:
    """Each expert's matrix [parts * outputs, inputs], known to the compiler.

    parts: first products, 1 or 2. The kth row of the first one is row k * step, and that of the
        second one `apart` behind it.
    """

    outputs: int
    inputs: int
    parts: int = 1
    is_interleaved: bool = False

    @property
    def step(self) -> int:
        return self.parts if self.is_interleaved else 1

    @property
    def apart(self) -> int:
        return 1 if self.is_interleaved else self.outputs


@dataclass(frozen=True)
class KnownActivation:
    """An `ExpertActivation`, known to the compiler."""

    kind: int
    limit: float
    slope: float
    cube: float
    shift: float

    @property
    def has_limit(self) -> bool:
        return self.limit < inf


@dataclass(frozen=True)
class Matrices:
    """The matrices of experts: weight [experts, parts * outputs, inputs], bias [experts, parts *
    outputs] or None, both contiguous."""

    weight: Tensor
    bias: Tensor | None
    shape: MatrixShape


@dataclass(frozen=True)
class ProductTiling:
    """How a product is parted: rows of a matrix and inputs that a program has at a time."""

    rows: int
    inputs: int
    warps: int
    stages: int


# By the tokens of a block. Two warps multiply by the same instructions whatever the tokens are;
# four and more by those of Hopper.
TILINGS: Mapping[int, ProductTiling] = {
    8: ProductTiling(64, 128, 2, 4),
    16: ProductTiling(64, 128, 2, 4),
    32: ProductTiling(64, 64, 2, 4),
    64: ProductTiling(128, 64, 4, 4),
    128: ProductTiling(256, 64, 8, 4),
}
TOKENS: Mapping[int, float] = {8: 4, 16: 8, 32: 24, 64: 256, 128: inf}  # to a mean of an expert
# Numbers of float32 are multiplied one by one: larger tiles would not stay in registers.
WIDE_TILING, WIDE_TOKENS = ProductTiling(32, 32, 4, 2), {8: 4.0, 16: inf}


def answers(
    x: Tensor, index: Tensor, first: Matrices, down: Matrices, activation: ExpertActivation
) -> Tensor:
    """Computes what experts answer to x [tokens, in]: [tokens * k, out].

    index: int64 [tokens, k], numbers of experts; any other number is none, and its answer may be
        anything.
    """
    n, x = index.numel(), x.contiguous()
    between, out = x.new_empty(n, down.shape.inputs), x.new_empty(n, down.shape.outputs)
    if n:
        blocks = _blocks(index.contiguous(), len(first.weight), x.dtype)
        _multiply(x, first, blocks, KnownActivation(*activation), out=between)
        _multiply(between, down, blocks, None, out=out)
    return out


@dataclass(frozen=True)
class _Blocks:
    """Blocks of places. Those that are not grouped are places, one each."""

    chosen: ChosenExperts
    is_grouped: bool


def _blocks(index: Tensor, n_experts: int, dtype: torch.dtype) -> _Blocks:
    n, sizes = index.numel(), WIDE_TOKENS if dtype == torch.float32 else TOKENS
    if n * SPARE_EXPERTS <= n_experts:
        experts = index.flatten()
        alone = ChosenExperts(experts, experts, experts, min(sizes), index.shape[1])
        return _Blocks(alone, is_grouped=False)
    tokens = tokens_of_blocks(n, n_experts, sizes)
    return _Blocks(chosen_experts(index, n_experts, tokens), is_grouped=True)


def _multiply(
    x: Tensor,  # [places or tokens, in]
    matrices: Matrices,
    blocks: _Blocks,
    activation: KnownActivation | None,
    *,
    out: Tensor,  # [places, out]
) -> None:
    chosen, shape = blocks.chosen, matrices.shape
    tiling = WIDE_TILING if x.dtype == torch.float32 else TILINGS[chosen.tokens]
    outputs = tiling.rows // shape.parts
    expert_product_kernel[(triton.cdiv(shape.outputs, outputs), len(chosen.experts))](
        x, matrices.weight, _or(matrices.bias, x), out, chosen.places, chosen.begins,
        chosen.experts, len(matrices.weight), len(out) // len(x), SHAPE=shape,
        ACTIVATION=activation, HAS_BIAS=matrices.bias is not None, IS_GROUPED=blocks.is_grouped,
        OUTPUTS=outputs, TOKENS=chosen.tokens, INPUTS=tiling.inputs, DOT=dot_dtype(x.dtype),
        num_warps=tiling.warps, num_stages=tiling.stages, enable_fp_fusion=True,
    )  # fmt: skip


def activated(
    x: Tensor,
    bias: Tensor | None,
    index: Tensor,
    n_experts: int,
    shape: MatrixShape,
    activation: ExpertActivation,
) -> Tensor:
    """Computes what stands between products: [places, parts * outputs] -> [places, outputs].

    bias: [experts, parts * outputs]. The results of places without an expert are not written.
    """
    out = x.new_empty(len(x), shape.outputs)
    if len(x):
        activation_kernel[(len(x), triton.cdiv(shape.outputs, BLOCK))](
            x, _or(bias, x), index.contiguous(), out, n_experts, SHAPE=shape,
            ACTIVATION=KnownActivation(*activation), HAS_BIAS=bias is not None,
            BLOCK=min(BLOCK, triton.next_power_of_2(shape.outputs)), num_warps=4,
            enable_fp_fusion=True,
        )  # fmt: skip
    return out


def weighted_sum(
    answers: Tensor,  # [tokens * k, out]; those of no expert may be anything
    bias: Tensor | None,  # [experts, out], of answers
    index: Tensor,  # int64 [tokens, k]
    weights: Tensor,  # [tokens, k]
    n_experts: int,
    residual: Tensor | None = None,  # contiguous [tokens, out]
) -> Tensor:
    """Adds up answers by weights, and then the residual, in whose memory the sum is."""
    (n, k), width = index.shape, answers.shape[1]
    out = answers.new_empty(n, width) if residual is None else residual
    if n:
        weighted_sum_kernel[(n, triton.cdiv(width, BLOCK))](
            answers, _or(bias, answers), index.contiguous(), weights.contiguous(),
            _or(residual, answers), out, n_experts, CHOICES=k, WIDTH=width,
            HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None,
            BLOCK=min(BLOCK, triton.next_power_of_2(width)), num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor

"""Routers in one kernel: the product with their weights, scores, and the choice of experts.

Every task is computed in one order whatever else is in the batch, so what is beside a token and
which thread takes it change no bit. Of experts with equal scores those with lower numbers are
chosen.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, multiply_some
from deployments.engine.kernels.cpu.matmul_kernels import padded_rows
from deployments.engine.kernels.cpu.simd import (
    PACK,
    Code,
    at_f32,
    at_i64,
    at_u16,
    call,
    exp,
    next_task,
    to_bfloat16,
    to_float32,
)
from deployments.engine.kernels.experts import SOFTMAX


class ExpertRouterArguments(NamedTuple):
    x: int  # bfloat16 [tokens, n_inputs]
    weight: int  # packed, [experts / PACK, n_inputs and one more if odd, PACK] of float32,
    #   or as `multiply` takes bfloat16
    is_wide: int  # whether weights are float32, not bfloat16
    rounds: int  # whether logits are rounded to bfloat16
    bias: int  # float32 [experts], of the logits; or 0
    correction: int  # float32 [experts], which is added to scores for the choice alone; or 0
    logits: int  # memory: float32 [tokens, experts]
    chosen: int  # int64 [tokens, k]
    weights: int  # [tokens, k]
    has_wide_weights: int  # whether these are float32, not bfloat16
    n_tokens: int
    n_inputs: int
    n_experts: int
    k: int
    rows_per_task: int
    barrier: int  # address of a function in which threads wait for each other
    score: int  # SOFTMAX or SIGMOID
    n_groups: int
    n_chosen_groups: int
    best_of_group: int  # experts whose scores add up to their group's
    is_normed: int  # whether weights add up to `factor`
    epsilon: float  # is added to their sum
    factor: float


_routing_arguments = reader_of(ExpertRouterArguments)


@njit(inline="always")
def _multiply(block: Code, args: Code, n_tasks: Code, n_blocks: Code) -> Code:
    """The logits. Returns the task behind `n_tasks` that was taken."""
    n_rows, width, n, step = args.n_tokens, args.n_inputs, args.n_experts, args.rows_per_task
    x = carray(at_u16(args.x), (n_rows, width))
    logits = carray(at_f32(args.logits), (n_rows, n))
    even = width + width % 2
    rows = np.zeros((padded_rows(step), even), np.float32)
    sums = np.empty((FULL_TILE, PACK), np.float32)
    loaded, task = -1, next_task(block)
    while task < n_tasks:
        begin, first = task // n_blocks * step, task % n_blocks * PACK
        end, count = min(n_rows, begin + step), min(PACK, n - first)
        if begin != loaded:
            for row in range(begin, end):
                for i in range(width):
                    rows[row - begin, i] = to_float32(x[row, i])
            loaded = begin
        weight = args.weight + (4 if args.is_wide else 2) * first * even
        row = begin
        while row < end:
            own, left = rows.ctypes.data + 4 * (row - begin) * even, end - row
            into = sums.ctypes.data
            if args.is_wide:
                tile = multiply_some(weight, 0, own, even, 1, into, even, left, PACK, PACK, 32, 0)
            else:
                tile = multiply_some(weight, 0, own, even, 1, into, even, left, PACK, PACK, 16, 0)
            for nth in range(min(tile, left)):
                if args.bias != 0:
                    bias = carray(at_f32(args.bias + 4 * first), (count,))
                    for i in range(count):
                        sums[nth, i] += bias[i]
                for i in range(count):
                    rounded = to_float32(to_bfloat16(sums[nth, i]))
                    logits[row + nth, first + i] = rounded if args.rounds else sums[nth, i]
            row += tile
        task = next_task(block)
    return task


@njit(inline="always")
def _softmax(x: Code) -> None:
    most = x[0]
    for i in range(len(x)):
        most = max(most, x[i])
    total = np.float32(0)
    for i in range(len(x)):
        x[i] = exp(x[i] - most)
        total += x[i]
    for i in range(len(x)):
        x[i] /= total


@njit(inline="always")
def _take_best(scores: Code, is_taken: Code, begin: Code, end: Code) -> Code:
    """Takes the best one that is not taken. There must be one."""
    best = -1
    for i in range(begin, end):
        if not is_taken[i] and (best < 0 or scores[i] > scores[best]):
            best = i
    is_taken[best] = True
    return best


@njit(inline="always")
def _bar_groups(scores: Code, args: Code, of_groups: Code, is_taken: Code) -> None:
    """Lowers the scores of all groups but the best ones below all others."""
    size = args.n_experts // args.n_groups
    for group in range(args.n_groups):
        is_taken[:] = False
        of_groups[group] = 0
        for _ in range(min(size, args.best_of_group)):
            best = _take_best(scores, is_taken, group * size, group * size + size)
            of_groups[group] += scores[best]
    is_taken[:] = False
    for _ in range(args.n_chosen_groups):
        _take_best(of_groups, is_taken, 0, args.n_groups)
    for group in range(args.n_groups):
        if not is_taken[group]:
            scores[group * size : group * size + size] = -np.inf


@njit(inline="always")
def _score(logits: Code, args: Code, scores: Code, ranks: Code) -> None:
    """Writes scores, and what experts are chosen by."""
    for i in range(len(logits)):
        scores[i] = logits[i]
    if args.score == SOFTMAX:
        _softmax(scores)
    else:
        for i in range(len(logits)):
            small = exp(-abs(scores[i]))
            rise = np.float32(1) if scores[i] >= 0 else small
            scores[i] = rise / (np.float32(1) + small)
    if args.correction != 0:
        correction = carray(at_f32(args.correction), (len(logits),))
        for i in range(len(logits)):
            ranks[i] = scores[i] + correction[i]
    else:
        # The softmax of two logits may be equal where these are not. Sums are of scores alone.
        has_sums = args.n_groups > args.n_chosen_groups and args.best_of_group > 1
        for i in range(len(logits)):
            ranks[i] = logits[i] if args.score == SOFTMAX and not has_sums else scores[i]


@cache
def router_kernel() -> Kernel:
    """The experts of each token, and their weights."""

    def body(block: Code) -> None:
        args = _routing_arguments(block)
        n, k = args.n_experts, args.k
        n_blocks = (n + PACK - 1) // PACK
        n_tasks = (args.n_tokens + args.rows_per_task - 1) // args.rows_per_task * n_blocks
        task = _multiply(block, args, n_tasks, n_blocks)
        call(args.barrier, 0)
        scores, ranks, own = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(k, np.int64)
        of_groups, is_taken = np.empty(args.n_groups, np.float32), np.empty(n, np.bool_)
        wide = carray(at_f32(args.weights), (args.n_tokens, k))
        narrow = carray(at_u16(args.weights), (args.n_tokens, k))
        while task - n_tasks < args.n_tokens:
            token = task - n_tasks
            _score(carray(at_f32(args.logits + 4 * token * n), (n,)), args, scores, ranks)
            if args.n_groups > args.n_chosen_groups:
                _bar_groups(ranks, args, of_groups, is_taken)
            chosen = carray(at_i64(args.chosen + 8 * token * k), (k,))
            is_taken[:] = False
            total = np.float32(0)
            for nth in range(k):
                own[nth] = _take_best(ranks, is_taken, 0, n)
                total += scores[own[nth]]
            factor = np.float32(args.factor)
            if args.is_normed:
                factor /= total + np.float32(args.epsilon)
            for nth in range(k):
                chosen[nth] = own[nth]
                weight = scores[own[nth]] * factor
                if args.has_wide_weights:
                    wide[token, nth] = weight
                else:
                    narrow[token, nth] = to_bfloat16(weight)
            task = next_task(block)

    return Kernel(body, ExpertRouterArguments)

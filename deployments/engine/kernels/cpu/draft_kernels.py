"""Kernels of a draft head's pass over single tokens, for bfloat16 on a CPU, compiled by numba."""

from functools import cache
from math import inf
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.draw_kernels import draw_between
from deployments.engine.kernels.cpu.simd import (
    Code,
    at_f32,
    at_i64,
    at_u16,
    at_u64,
    next_task,
    to_bfloat16,
    to_float32,
)


class JoinArguments(NamedTuple):
    token_ids: int  # int64 [tokens]
    embeddings: int  # bfloat16 [vocab, width]
    vocab: int  # a token that is none of these is read as token 0
    states: int  # bfloat16 [states, width]
    given: int  # bfloat16 [tokens, width], states of the tokens themselves; or 0
    rows: int  # int64 [tokens], the state of each: -n is number n - 1 of those given
    kept_at: int  # int64 [tokens], the rows of `states` that given ones are copied to
    embedding_weight: int  # bfloat16 [width], of the norm
    state_weight: int  # the same
    out: int  # bfloat16 [tokens, 2 * width]
    residual: int  # bfloat16 [tokens, width]
    tokens: int
    width: int
    norms_residual: int
    epsilon: float


_join_arguments = reader_of(JoinArguments)


@njit(inline="always")
def _norm(x: Code, weight: Code, out: Code, epsilon: Code) -> None:
    """Computes what `norm_kernel` does of a token."""
    width = len(x)
    squares = np.float32(0)
    for i in range(width):
        value = to_float32(x[i])
        squares += value * value
    scale = np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)
    for i in range(width):
        out[i] = to_bfloat16(to_float32(x[i]) * scale * to_float32(weight[i]))


@cache
def join_kernel() -> Kernel:
    """The normed embedding of each token beside the normed state, and the residual: the state as it
    is, or normed."""

    def body(block: Code) -> None:
        args = _join_arguments(block)
        n, width, epsilon = args.tokens, args.width, np.float32(args.epsilon)
        ids, rows = carray(at_i64(args.token_ids), (n,)), carray(at_i64(args.rows), (n,))
        embedding_weight = carray(at_u16(args.embedding_weight), (width,))
        state_weight = carray(at_u16(args.state_weight), (width,))
        out = carray(at_u16(args.out), (n, 2, width))
        residual = carray(at_u16(args.residual), (n, width))
        while True:
            token = next_task(block)
            if token >= n:
                break
            token_id = ids[token]
            if token_id >= args.vocab:
                token_id = 0
            embedding = carray(at_u16(args.embeddings + 2 * token_id * width), (width,))
            row, source = rows[token], args.states
            if row < 0:
                row, source = -1 - row, args.given
            state = carray(at_u16(source + 2 * row * width), (width,))
            _norm(embedding, embedding_weight, out[token, 0], epsilon)
            _norm(state, state_weight, out[token, 1], epsilon)
            kept = out[token, 1] if args.norms_residual else state
            for i in range(width):
                residual[token, i] = kept[i]
            if args.given != 0:
                own = carray(at_u16(args.given + 2 * token * width), (width,))
                at = carray(at_i64(args.kept_at), (n,))[token]
                place = carray(at_u16(args.states + 2 * at * width), (width,))
                for i in range(width):
                    place[i] = own[i]

    return Kernel(body, JoinArguments)


class GuessArguments(NamedTuple):
    logits: int  # bfloat16 [rows, n_said]
    n_said: int
    target_ids: int  # int64 [n_said], the model's id of each; 0: these are all, as they are
    vocab: int  # of the model
    temperatures: int  # float32 [rows]; 0: the likeliest token
    keys: int  # uint64 [rows], of the noise
    scaled: int  # float32 [rows, vocab], which is overwritten
    token_ids: int  # int64 [rows], of the model
    rows: int


_guess_arguments = reader_of(GuessArguments)


# With `fastmath` a division becomes a product with the reciprocal: other bits than torch's.
@njit(error_model="numpy", fastmath=False)
def _scale(scaled: Code, largest: Code, temperature: Code) -> None:
    for i in range(len(scaled)):
        scaled[i] = (scaled[i] - largest) / temperature


@cache
def guess_kernel() -> Kernel:
    """The token of each row that temperature and noise give: as `TemperatureStrategy` and `draw`
    compute it."""

    def body(block: Code) -> None:
        args = _guess_arguments(block)
        n, n_said, vocab = args.rows, args.n_said, args.vocab
        temperatures = carray(at_f32(args.temperatures), (n,))
        keys, token_ids = carray(at_u64(args.keys), (n,)), carray(at_i64(args.token_ids), (n,))
        targets = carray(at_i64(args.target_ids), (n_said,))
        while True:
            row = next_task(block)
            if row >= n:
                break
            logits = carray(at_u16(args.logits + 2 * row * n_said), (n_said,))
            scaled = carray(at_f32(args.scaled + 4 * row * vocab), (vocab,))
            largest = np.float32(-inf)
            for i in range(n_said):
                largest = max(largest, to_float32(logits[i]))
            if args.target_ids != 0:
                for i in range(vocab):
                    scaled[i] = -inf
                for i in range(n_said):
                    scaled[targets[i]] = to_float32(logits[i])
            else:
                for i in range(vocab):
                    scaled[i] = to_float32(logits[i])
            temperature = temperatures[row]
            if temperature == 0:
                token_id = 0
                while token_id < vocab - 1 and scaled[token_id] != largest:
                    token_id += 1
            else:
                if temperature != 1:
                    _scale(scaled, largest, temperature)
                    largest = np.float32(0)
                token_id, _ = draw_between(scaled, largest, keys[row], 0, vocab)
            token_ids[row] = token_id

    return Kernel(body, GuessArguments)
